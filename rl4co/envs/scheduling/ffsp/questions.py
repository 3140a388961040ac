"""The questions of a flow shop: which machine is asked next, when, and whether it may wait."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.envs.base import State
from rl4co.envs.scheduling.ffsp.schedule import smallest_by_group

#: Later than anything happens, and far from overflow when multiplied by a number of machines.
NEVER = 2**40


def count_machines(state: Mapping[str, Tensor]) -> int:
    """Number of machines P of all stages."""
    return state["machine_table"].shape[-1]


def fresh(state: State) -> State:
    """The state of the same instances, in the same order of machines, before the first step."""
    zero = torch.zeros_like(state["time_idx"])
    location = torch.zeros_like(state["job_location"])
    location[..., -1] = state["schedule"].shape[-2]
    return {
        **state,
        "time_idx": zero,
        "sub_time_idx": zero,
        "machine_idx": state["machine_table"][..., 0],
        "stage_idx": zero,
        "stage_machine_idx": state["stage_machine_table"][..., 0],
        "machine_wait_step": torch.zeros_like(state["machine_wait_step"]),
        "job_location": location,
        "job_wait_step": torch.zeros_like(state["job_wait_step"]),
        "job_ready_time": torch.zeros_like(state["job_ready_time"]),
        "schedule": torch.zeros_like(state["schedule"]),
        "done": torch.zeros_like(state["done"]),
    }


def next_question(
    state: State, location: Tensor, job_wait: Tensor, machine_wait: Tensor, done: Tensor
) -> tuple[Tensor, Tensor]:
    """In how much time which machine is asked next.

    Args:
        state: Before the action.
        location: Stages that jobs have begun after it `[*B, J + 1]`.
        job_wait: Time until jobs' operations end `[*B, J + 1]`.
        machine_wait: Time until machines are free `[*B, P]`.
        done: Whether nothing will be asked any more `[*B, 1]`.

    Returns:
        Time from now and place in `machine_table`, both `[*B, 1]`.
    """
    num_stages, num_machines = state["schedule"].shape[-2], count_machines(state)
    position = state["sub_time_idx"].unsqueeze(-1)  # [*B, 1]
    places = torch.arange(num_machines, device=location.device)
    # Until a job waits at each stage; until each machine, in order, is free and has one.
    arrival = smallest_by_group(job_wait, location.clamp_max(num_stages), num_stages + 1, NEVER)
    free = machine_wait.gather(-1, state["machine_table"]).unflatten(-1, (num_stages, -1))
    due = torch.maximum(free, arrival[..., :num_stages, None]).flatten(-2)  # [*B, P]
    # Who has been asked at this time is asked again after the next event. If there is none, all
    # have waited for nothing and are asked again, behind all others of this time; the mask does
    # not let this happen. Times are doubled to have room for that.
    event = smallest_by_group(job_wait, (job_wait == 0).long(), 2, NEVER)[..., :1]  # [*B, 1]
    again = torch.where(event < NEVER, 2 * event, 1)
    due = torch.where((due == 0) & (places <= position), again, 2 * due)
    soonest = (due * num_machines + places).argmin(-1, keepdim=True)  # earliest, then in order
    delay = torch.where(done, 0, due.gather(-1, soonest) // 2)
    return delay, torch.where(done, position, soonest)


def stage_goes_on(state: State) -> Tensor:
    """Whether some other machine of the stage is busy, or is asked after this one: `[*B, 1]`."""
    num_stages = state["schedule"].shape[-2]
    per_stage = count_machines(state) // num_stages
    busy = (state["machine_wait_step"] > 0).unflatten(-1, (num_stages, per_stage)).sum(-1)  # [*B,S]
    some_busy = busy.gather(-1, state["stage_idx"].unsqueeze(-1)) > 0
    last = (state["sub_time_idx"] % per_stage == per_stage - 1).unsqueeze(-1)
    return some_busy | ~last
