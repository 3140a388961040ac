"""FFSP: one operation per stage; the machine that is asked takes a job or the last action, none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._orders import Jobs, Order, left_shifted
from rl4co.solvers.formulations._scheduling import (
    Rule,
    SchedulingFormulation,
    State,
    Task,
    with_aliases,
)
from rl4co.solvers.formulations._shops import shop_task


@FORMULATIONS.register("ffsp")
class FFSPFormulation(SchedulingFormulation):
    """Flexible flow shops."""

    solvers = ("cpsat", "dispatching")
    first_rules = ("spt", "mwkr", "fifo")
    idle = -1

    def tasks(self, env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
        """Shops in which all jobs have the same sequence of stages."""
        num_jobs, num_stages = td["run_time"].shape[-2], td["schedule"].shape[-2]
        start, machine = env.get_schedule(td, first).by_job(num_jobs, num_stages)
        starts, machines = start.tolist(), machine.tolist()  # [B, J, S]
        return [
            shop_task(
                jobs,
                {
                    (j, s, machines[b][j][s]): starts[b][j][s]
                    for j in range(num_jobs)
                    for s in range(num_stages)
                },
            )
            for b, jobs in enumerate(_operations(td))
        ]

    def encode(self, env: Any, td: TensorDictBase, solutions: Sequence[Order]) -> Tensor:
        """Orders of operations, as early as possible."""
        shape = (len(solutions), td["run_time"].shape[-2], td["schedule"].shape[-2])
        start = torch.zeros(shape, dtype=torch.int64)
        machine = torch.zeros_like(start)
        for b, (jobs, order) in enumerate(zip(_operations(td), solutions, strict=True)):
            starts, _ = left_shifted(jobs, order)
            for j, s, m in order:
                start[b, j, s], machine[b, j, s] = int(starts[j, s]), m
        device = td["run_time"].device
        return env.actions_from_schedule(td, start.to(device), machine.to(device))

    def rules(self, lookahead: float) -> Mapping[str, Rule]:
        """Rules that look at this stage, or at all that remain."""
        return with_aliases(
            {
                "spt": _time_on_machine,
                "fifo": lambda state: state["job_ready_time"][..., :-1].double(),
                "lwkr": _work_from_stage,
            }
        )

    def candidates(self, state: State) -> Tensor:
        """Jobs that the machine may take `[B, J]`."""
        return state["action_mask"][..., :-1]

    def start(self, state: State, job: Tensor) -> Tensor:
        """Action j takes job j."""
        return job


def _operations(td: TensorDictBase) -> list[Jobs]:
    """The operations of flow shops: one per stage."""
    num_stages = td["schedule"].shape[-2]
    size = td["run_time"].shape[-1] // num_stages
    return [
        [
            [{m: row[m] for m in range(s * size, (s + 1) * size)} for s in range(num_stages)]
            for row in rows
        ]
        for rows in td["run_time"].tolist()
    ]


def _time_on_machine(state: State) -> Tensor:
    """Processing times on the machine that is asked `[B, J]`."""
    times = state["run_time"]
    machine = state["machine_idx"][..., None, None].expand(*times.shape[:-1], 1)  # [B, J, 1]
    return times.gather(-1, machine).squeeze(-1).double()


def _work_from_stage(state: State) -> Tensor:
    """Mean processing times in this stage and all later ones `[B, J]`."""
    num_stages = state["schedule"].shape[-2]
    means = state["run_time"].double().unflatten(-1, (num_stages, -1)).mean(-1)  # [B, J, S]
    stages = torch.arange(num_stages, device=means.device)
    ahead = stages >= state["stage_idx"][..., None, None]  # [B, 1, S]
    return (means * ahead).sum(-1)
