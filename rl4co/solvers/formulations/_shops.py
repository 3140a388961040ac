"""Shared parts of formulations of shops: tasks for CP-SAT, and the rules of job shops."""

from __future__ import annotations

import math

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.solvers._orders import Jobs, Order, left_shifted
from rl4co.solvers.formulations._scheduling import (
    RESOLUTION,
    Rule,
    SchedulingFormulation,
    State,
    Task,
    find_unit,
    with_aliases,
)


def shop_task(jobs: Jobs, starts: Mapping[tuple[int, int, int], float]) -> Task:
    """A task from a schedule to start from: (job, place, machine) → start."""
    times = [time for job in jobs for operation in job for time in operation.values()]
    unit = find_unit(times, RESOLUTION)
    integers = [
        [{machine: math.floor(time / unit) for machine, time in op.items()} for op in job]
        for job in jobs
    ]
    # Of equal starts the earlier operation of a job comes first.
    order = sorted(starts, key=lambda key: (starts[key], key[1], key[0]))
    return Task((integers, order), unit)


class JobShopFormulation(SchedulingFormulation):
    """Shops in which each job has its own sequence of operations: JSSP and FJSP."""

    solvers = ("cpsat", "dispatching")
    first_rules = ("mwkr", "mor", "spt", "fifo")

    def tasks(self, env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
        """Operations on one of several machines each, one at a time."""
        schedule = env.get_schedule(td, first)
        starts, machines = schedule.start_times.tolist(), schedule.machines.tolist()  # [B, O]
        begins = td["start_op_per_job"].tolist()
        tasks = []
        for b, jobs in enumerate(_operations(td)):
            places = {
                (j, k, machines[b][begins[b][j] + k]): starts[b][begins[b][j] + k]
                for j, operations in enumerate(jobs)
                for k in range(len(operations))
            }
            tasks.append(shop_task(jobs, places))
        return tasks

    def encode(self, env: Any, td: TensorDictBase, solutions: Sequence[Order]) -> Tensor:
        """Orders of operations, as early as possible."""
        start = torch.zeros_like(td["pad_mask"], dtype=torch.float64, device="cpu")  # [B, O]
        machine = torch.zeros_like(start, dtype=torch.int64)
        begins = td["start_op_per_job"].tolist()
        for b, (jobs, order) in enumerate(zip(_operations(td), solutions, strict=True)):
            starts, _ = left_shifted(jobs, order)
            for j, k, m in order:
                op = begins[b][j] + k
                start[b, op], machine[b, op] = starts[j, k], m
        device = td["pad_mask"].device
        return env.actions_from_schedule(td, start.to(device), machine.to(device))

    def rules(self, lookahead: float) -> Mapping[str, Rule]:
        """Rules that look at the next operation, or at all that remain."""
        return with_aliases(
            {
                "spt": lambda state: self.startable_times(state).amin(-1),
                "fifo": lambda state: state["job_busy_until"],
                "lor": _remaining_operations,
                "lwkr": _RemainingWork(),
            }
        )

    def startable_times(self, state: State) -> Tensor:
        """Times of jobs' next operations, infinite where they cannot be processed `[B, J, M]`."""
        times = _next_times(state)
        return torch.where(times > 0, times, torch.inf)


def _operations(td: TensorDictBase) -> list[Jobs]:
    """The operations of job shops."""
    shops: list[Jobs] = []
    for row in td.select("proc_times", "start_op_per_job", "end_op_per_job", "pad_mask").cpu():
        times, pad = row["proc_times"].t().tolist(), row["pad_mask"].tolist()  # [O, M], [O]
        first, last = row["start_op_per_job"].tolist(), row["end_op_per_job"].tolist()
        shops.append(
            [
                [
                    {m: time for m, time in enumerate(times[op]) if time > 0}
                    for op in range(a, b + 1)
                ]
                for a, b in zip(first, last, strict=True)
                if not pad[a]
            ]
        )
    return shops


def _next_times(state: State) -> Tensor:
    """Processing times of jobs' next operations on all machines, 0 = not eligible `[B, J, M]`."""
    times, next_op = state["proc_times"], state["next_op"]
    index = next_op.unsqueeze(-2).expand(*times.shape[:-1], -1)  # [B, M, J]
    return times.gather(-1, index).transpose(-1, -2)


def _remaining_operations(state: State) -> Tensor:
    return (state["end_op_per_job"] - state["next_op"]).double()


class _RemainingWork:
    """Mean processing times of operations that are not started, summed over each job `[B, J]`.

    The work of the operations and its running sum are computed once per tensor `proc_times`, which
    all states of an episode share.
    """

    def __init__(self) -> None:
        self._times: Tensor | None = None
        self._version: int | None = None
        self._sums: tuple[Tensor, Tensor] | None = None

    def __call__(self, state: State) -> Tensor:
        work, cumulative = self._work(state["proc_times"])  # [B, O] each
        last, following = state["end_op_per_job"], state["next_op"]
        left = cumulative.gather(-1, last) - cumulative.gather(-1, following)
        return left + work.gather(-1, following)

    def _work(self, proc_times: Tensor) -> tuple[Tensor, Tensor]:
        # Tensors count the writes into them, except those made in inference mode.
        version = None if proc_times.is_inference() else proc_times._version
        if self._sums is None or proc_times is not self._times or version != self._version:
            times = proc_times.double()  # [B, M, O]
            work = times.sum(-2) / (times > 0).sum(-2).clamp_min(1)  # [B, O]
            self._times, self._version, self._sums = proc_times, version, (work, work.cumsum(-1))
        return self._sums
