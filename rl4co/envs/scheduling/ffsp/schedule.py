"""What solutions of the flexible flow shop mean: schedules, and the way back to actions.

The simulation here is the one of the validity check. It shares nothing with the environment's
transition: time is absolute, and every operation is kept.
"""

from __future__ import annotations

import dataclasses

from typing import TYPE_CHECKING

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError, InvalidSolutionError
from rl4co.core.ops import all_true

if TYPE_CHECKING:
    from rl4co.envs.base import State
    from rl4co.envs.scheduling.ffsp.env import FFSPEnv


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Solutions step by step.

    Attributes:
        start: Time of each step `[*B, T]`.
        end: When the job that is started ends; the start for waits `[*B, T]`.
        machine: Machine that is asked `[*B, T]`.
        job: Its answer, J for waits and after the end `[*B, T]`.
        stage: Its stage `[*B, T]`.
        premature: Whether the job has not left the stage before, or is not at this one `[*B, T]`.
    """

    start: Tensor
    end: Tensor
    machine: Tensor
    job: Tensor
    stage: Tensor
    premature: Tensor

    def by_job(self, num_jobs: int, num_stages: int) -> tuple[Tensor, Tensor]:
        """Start and machine of each job in each stage, both `[*B, J, S]`, of valid solutions."""
        works = self.job < num_jobs
        # Waits write to a place behind the last operation.
        place = torch.where(works, self.job * num_stages + self.stage, num_jobs * num_stages)
        blank = torch.zeros_like(place[..., :1]).expand(
            *place.shape[:-1], num_jobs * num_stages + 1
        )
        start, machine = (
            blank.scatter(-1, place, value)[..., :-1].unflatten(-1, (num_jobs, num_stages))
            for value in (self.start, self.machine)
        )
        return start, machine


def trace_schedule(
    run_time: Tensor, machine_table: Tensor, num_stages: int, actions: Tensor
) -> Schedule:
    """Follows actions.

    Args:
        run_time: Processing times `[*B, J, P]`.
        machine_table: Order of the machines `[*B, P]`.
        num_stages: Number of stages.
        actions: `[*B, T]`; J waits.
    """
    num_jobs, num_machines = run_time.shape[-2:]
    per_stage = num_machines // num_stages
    batch, device = actions.shape[:-1], actions.device
    infinity = 2**50
    order = torch.arange(num_machines, device=device)
    stage_of = order // per_stage  # [P], of places in the order
    ready = torch.zeros(*batch, num_jobs, dtype=torch.int64, device=device)  # end of last operation
    passed = torch.zeros_like(ready)  # operations of each job so far
    free = torch.zeros(*batch, num_machines, dtype=torch.int64, device=device)  # by place in order
    clock = torch.zeros(*batch, 1, dtype=torch.int64, device=device)
    place = torch.zeros_like(clock)
    steps: list[tuple[Tensor, ...]] = []
    for action in actions.unbind(-1):
        over = all_true(passed >= num_stages)  # [*B, 1]
        works = (action.unsqueeze(-1) < num_jobs) & ~over
        job = action.unsqueeze(-1).clamp_max(num_jobs - 1)
        machine = machine_table.gather(-1, place)
        duration = run_time.flatten(-2).gather(-1, job * num_machines + machine)
        end = torch.where(works, clock + duration, clock)
        stage = place // per_stage
        wrong = (passed.gather(-1, job) != stage) | (ready.gather(-1, job) > clock)
        steps.append((clock, end, machine, torch.where(works, job, num_jobs), stage, works & wrong))
        ready = ready.scatter(-1, job, torch.where(works, end, ready.gather(-1, job)))
        passed = passed.scatter_add(-1, job, works.long())
        free = free.scatter(-1, place, torch.where(works, end, free.gather(-1, place)))
        # When each machine, in order, could have had a job first. Behind this pair (time, place)
        # it is asked at that time, or now if its turn is yet to come, or when something ends. If
        # nothing does, another round begins.
        at = passed.clamp_max(num_stages)
        soonest = smallest_by_group(ready, at, num_stages + 1, infinity)  # [*B, S + 1]
        asked = torch.maximum(free, soonest[..., stage_of])  # [*B, P]
        ends = smallest_by_group(ready, (ready <= clock).long(), 2, infinity)[..., :1]
        stuck = (ends == infinity) & (order <= place)
        again = torch.where((order > place) | stuck, clock, ends)
        asked = torch.where(asked > clock, asked, again)
        # Times are compared first, then rounds, then places.
        rounds = 2 * (asked - clock) + (stuck & (asked == clock))
        first = (rounds * num_machines + order).argmin(-1, keepdim=True)
        over = all_true(passed >= num_stages)
        clock = torch.where(over, clock, asked.gather(-1, first))
        place = torch.where(over, place, first)
    columns = [torch.cat(values, -1) for values in zip(*steps, strict=True)] if steps else [
        torch.zeros(*batch, 0, dtype=torch.int64, device=device)
    ] * 6  # fmt: skip
    start, end, machine, job, stage, premature = columns
    return Schedule(start, end, machine, job, stage, premature.bool())


def smallest_by_group(values: Tensor, group: Tensor, num_groups: int, default: int) -> Tensor:
    """Smallest value of each group: `[*B, N], [*B, N]` → `[*B, G]`.

    One pass over the values. On a CPU, `amin` of int64 is more than ten times slower.

    Args:
        values: Integers.
        group: Group of each value, 0 ... G - 1.
        num_groups: G.
        default: For groups without a value; none is larger.
    """
    empty = torch.full(
        (*values.shape[:-1], num_groups), default, dtype=values.dtype, device=values.device
    )
    return empty.scatter_reduce(-1, group, values, "amin")


def check_schedule(run_time: Tensor, start: Tensor, machine: Tensor, num_stages: int) -> None:
    """Raises unless schedules obey all constraints.

    Args:
        run_time: Processing times `[*B, J, P]`.
        start: `[*B, J, S]`.
        machine: `[*B, J, S]`.
        num_stages: S.
    """
    shape = [*run_time.shape[:-1], num_stages]
    for name, value in {"start_times": start, "machines": machine}.items():
        if list(value.shape) != shape or value.is_floating_point():
            raise ConfigError(
                f"expected integer {name} of shape {shape}, one for each job and stage, "
                f"got {value.dtype} of shape {list(value.shape)}"
            )
    num_machines = run_time.shape[-1]
    stage = torch.arange(num_stages, device=start.device)
    exists = (machine >= 0) & (machine < num_machines)
    inside = machine.clamp(0, num_machines - 1)
    end = start + run_time.gather(-1, inside)  # [*B, J, S]
    order = (inside * (1 + start.max() - start.min()) + start).flatten(-2).argsort(dim=-1)
    same = inside.flatten(-2).gather(-1, order).diff(dim=-1) == 0  # [*B, J * S - 1]
    begins, ends = (times.flatten(-2).gather(-1, order) for times in (start, end))
    violations = {
        "a job runs on a machine of each stage": ~exists
        | (inside // (num_machines // num_stages) != stage),
        "no job starts before time 0": start < 0,
        "a job starts in a stage when it has left the one before": start[..., 1:] < end[..., :-1],
        "a machine runs one job at a time": same & (begins[..., 1:] < ends[..., :-1]),
    }
    for constraint, violated in violations.items():
        rows = violated.flatten(run_time.dim() - 2).any(-1).flatten()  # [B]
        if rows.any():
            raise InvalidSolutionError(constraint, rows.nonzero().flatten().tolist(), len(rows))


def left_shift(run_time: Tensor, start: Tensor, machine: Tensor) -> Tensor:
    """Earliest starts with the same order of operations on every machine.

    Args:
        run_time: Processing times `[*B, J, P]`.
        start: `[*B, J, S]`.
        machine: `[*B, J, S]`.

    Returns:
        Starts `[*B, J, S]`, none later than before.
    """
    num_jobs, num_stages = start.shape[-2:]
    order = start.flatten(-2).argsort(dim=-1, stable=True)  # [*B, J * S]
    on = machine.flatten(-2).gather(-1, order)
    job = order // num_stages
    duration = run_time.flatten(-2).gather(-1, job * run_time.shape[-1] + on)
    ready = torch.zeros_like(start[..., 0])  # [*B, J]
    free = torch.zeros_like(run_time[..., 0, :])  # [*B, P]
    begins = []
    for step in range(num_jobs * num_stages):
        j, m = job[..., step : step + 1], on[..., step : step + 1]  # [*B, 1]
        begin = torch.maximum(ready.gather(-1, j), free.gather(-1, m))
        end = begin + duration[..., step : step + 1]
        ready, free = ready.scatter(-1, j, end), free.scatter(-1, m, end)
        begins.append(begin)
    early = torch.zeros_like(order).scatter(-1, order, torch.cat(begins, -1))
    return early.unflatten(-1, (num_jobs, num_stages))  # [*B, J, S]


def follow_schedule(env: FFSPEnv, state: State, start: Tensor, machine: Tensor) -> Tensor:
    """Answers every question of the environment according to a schedule without needless delay.

    Args:
        env: The environment.
        state: Fresh state with batch `[*B]`.
        start: `[*B, J, S]`.
        machine: `[*B, J, S]`.

    Returns:
        Actions `[*B, T]`.
    """
    num_jobs, num_stages = start.shape[-2:]
    actions: list[Tensor] = []
    most = num_jobs * num_stages * (1 + state["machine_table"].shape[-1])
    while len(actions) < most and not bool(state["done"].all()):
        now = state["time_idx"][..., None, None]  # [*B, 1, 1]
        mine = (start == now) & (machine == state["machine_idx"][..., None, None])  # [*B, J, S]
        chosen = mine.any(-1) & ~state["done"]  # [*B, J]
        job = torch.where(chosen.any(-1), chosen.to(torch.int8).argmax(-1), num_jobs)  # [*B]
        actions.append(job)
        state = {**state, **env._transition(state, job)}
    return torch.stack(actions, -1)  # [*B, T]
