"""Times of a job shop as pure functions of instance and state: facts, events, estimates."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.envs.base import State


def machine_facts(instance: State, bound: str) -> State:
    """Keys of the state that describe machines and do not change in an episode.

    Args:
        instance: See :class:`~rl4co.envs.scheduling.fjsp.env.FJSPEnv`.
        bound: "mean" or "min", over the eligible machines of an operation.
    """
    times = instance["proc_times"]
    eligible = times > 0
    num_eligible = eligible.sum(-2).to(times.dtype)  # [*B, O]
    if bound == "mean":
        typical = times.sum(-2) / num_eligible.clamp_min(1.0)  # [*B, O]
    else:
        typical = torch.where(eligible, times, torch.inf).amin(-2)
        typical = torch.where(instance["pad_mask"], 0.0, typical)
    return {
        "ops_ma_adj": eligible,
        "num_eligible": num_eligible,
        "op_times": typical,
        "cumulative_work": typical.cumsum(-1),
        "ma_assignment": torch.zeros_like(num_eligible, dtype=torch.int64),
    }


def of_next_ops(state: State, key: str) -> Tensor:
    """Columns of a table `[*B, M, O]` that belong to the jobs' next operations: `[*B, M, J]`."""
    table, next_op = state[key], state["next_op"].unsqueeze(-2)  # [*B, M, O], [*B, 1, J]
    return table.gather(-1, next_op.expand(*table.shape[:-1], next_op.shape[-1]))


def next_event(state: State, waits: Tensor) -> Tensor:
    """The clock `[*B]`, at the next end of an operation for those that wait, `waits [*B, 1]`."""
    now, busy = state["time"].unsqueeze(-1), state["busy_until"]  # [*B, 1], [*B, M]
    event = torch.where(busy > now, busy, torch.inf).amin(-1, keepdim=True)  # [*B, 1]
    return torch.where(waits & (event < torch.inf), event, now).squeeze(-1)


def estimates(state: State, next_finish: Tensor) -> Tensor:
    """`lbs [*B, O]`, from the estimated ends of the jobs' next operations `[*B, J]`."""
    work = state["cumulative_work"]
    # How far each job is ahead of the running sum of work.
    ahead = next_finish - work.gather(-1, state["next_op"])  # [*B, J]
    estimate = work + ahead.gather(-1, state["ops_job_map"])  # [*B, O]
    return torch.where(state["op_scheduled"], state["finish_times"], estimate)
