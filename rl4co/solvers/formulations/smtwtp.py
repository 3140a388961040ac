"""SMTWTP: jobs on a single machine, by the sum of their weighted tardinesses."""

from __future__ import annotations

import functools
import math

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations._scheduling import (
    RESOLUTION,
    Rule,
    SchedulingFormulation,
    State,
    Task,
    find_unit,
    with_aliases,
)

#: Units of the largest weight, if weights are not whole numbers.
WEIGHT_RESOLUTION = 100_000

#: Keys of due times, weights and processing times; job 0 is a dummy.
_KEYS = ("job_due_time", "job_weight", "job_process_time")


@FORMULATIONS.register("smtwtp")
class SMTWTPFormulation(SchedulingFormulation):
    """Weighted tardiness on one machine."""

    solvers = ("cpsat", "dispatching")
    target = "rl4co.solvers._cpsat_worker:solve_tardiness"
    first_rules = ("atc", "edd", "wspt", "mdd")

    def tasks(self, env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
        """Times are rounded down and due times up, so that bounds stay valid."""
        tasks = []
        for row, actions in zip(td.select(*_KEYS).cpu(), first.tolist(), strict=True):
            due, weight, process = (row[key][1:].double().tolist() for key in _KEYS)
            are_integers = find_unit([*map(abs, due), *process], RESOLUTION) == 1.0
            time_unit = 1.0 if are_integers else sum(process) / RESOLUTION
            weight_unit = find_unit(weight, WEIGHT_RESOLUTION) or 1.0
            arguments = (
                # Later than the last job ends is late enough.
                [math.ceil(min(time, sum(process)) / time_unit) for time in due],
                [math.floor(value / weight_unit) for value in weight],
                [math.floor(time / time_unit) for time in process],
                [action - 1 for action in actions if action],
            )
            tasks.append(Task(arguments, time_unit * weight_unit))
        return tasks

    def encode(self, env: Any, td: TensorDictBase, solutions: Sequence[Sequence[int]]) -> Tensor:
        """Orders of jobs."""
        return torch.tensor(solutions, device=td["job_weight"].device) + 1

    def rules(self, lookahead: float) -> Mapping[str, Rule]:
        """Rules that look at times, due dates and weights."""
        return with_aliases(
            {
                "spt": lambda state: _jobs(state)[2],
                "edd": lambda state: _jobs(state)[0],
                "mdd": _modified_due_date,
                "wspt": _weight_per_time,
                "atc": functools.partial(_apparent_tardiness_cost, lookahead=lookahead),
            }
        )

    def candidates(self, state: State) -> Tensor:
        """Jobs that are left `[B, J]`."""
        return ~state["visited"][..., 1:]


def _jobs(state: State) -> tuple[Tensor, Tensor, Tensor]:
    """Due times, weights and processing times of the jobs `[B, J]`."""
    due, weight, process = (state[key][..., 1:].double() for key in _KEYS)
    return due, weight, process


def _modified_due_date(state: State) -> Tensor:
    due, _, process = _jobs(state)
    return torch.maximum(due, state["current_time"].double() + process)


def _weight_per_time(state: State) -> Tensor:
    _, weight, process = _jobs(state)
    return -weight / process


def _apparent_tardiness_cost(state: State, lookahead: float) -> Tensor:
    due, weight, process = _jobs(state)
    left = ~state["visited"][..., 1:]
    count = left.sum(-1, keepdim=True).clamp_min(1)
    mean = (process * left).sum(-1, keepdim=True) / count  # [B, 1]
    slack = (due - process - state["current_time"].double()).clamp_min(0)
    # By logarithms: far from its due date the cost of a job is too small for a number.
    patience = slack / (lookahead * torch.where(mean > 0, mean, torch.ones_like(mean)))
    return patience - (weight / process).log()
