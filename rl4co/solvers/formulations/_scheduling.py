"""Formulations of scheduling problems: numbers of a CP-SAT model, priorities of rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.solvers.formulations._base import Formulation

#: Units of the longest time, or of the work of all jobs on a single machine, if times are not whole
#: numbers (or larger than this many).
RESOLUTION = 1_000_000

#: The tensors of a state `[B, ...]` by name.
State = Mapping[str, Tensor]
#: State → priority of each job `[B, J]`, smaller first.
Rule = Callable[[State], Tensor]


class Task(NamedTuple):
    """An instance for a worker.

    Attributes:
        arguments: Arguments of the worker's function, without the limits.
        unit: Value of a unit of its objective.
    """

    arguments: tuple[Any, ...]
    unit: float


class SchedulingFormulation(Formulation):
    """How one scheduling problem is handed to CP-SAT and to dispatching rules.

    Attributes:
        target: Function of CP-SAT's worker, as `package.module:function`.
        first_rules: Dispatching rules whose best solution a search begins with.
        idle: The action that changes nothing after the end: 0, or -1 for the last one.
    """

    kind = "scheduling formulation"
    target: ClassVar[str] = "rl4co.solvers._cpsat_worker:solve_shop"
    first_rules: ClassVar[tuple[str, ...]] = ()
    idle: ClassVar[int] = 0

    def tasks(self, env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
        """Instances of a batch for the worker.

        Args:
            env: Environment.
            td: State after reset.
            first: Initial solutions `[B, T]`.
        """
        raise NotImplementedError

    def encode(self, env: Any, td: TensorDictBase, solutions: Sequence[Any]) -> Tensor:
        """Actions `[B, T]` of the solutions of the worker."""
        raise NotImplementedError

    def rules(self, lookahead: float) -> Mapping[str, Rule]:
        """Dispatching rules by name.

        Args:
            lookahead: How far rules that look at due dates look ahead.
        """
        raise NotImplementedError

    def candidates(self, state: State) -> Tensor:
        """Jobs that can be started `[B, J]`."""
        raise NotImplementedError

    def start(self, state: State, job: Tensor) -> Tensor:
        """Actions `[B]` that start jobs `[B]`; here action j + 1 starts job j."""
        return job + 1

    def wait(self, state: State) -> Tensor:
        """Actions `[B]` of finished instances."""
        num_actions = state["action_mask"].shape[-1]
        return torch.full_like(state["i"].squeeze(-1), self.idle % num_actions)


def find_unit(values: Sequence[float], resolution: int) -> float:
    """1 if all values are whole numbers and not too large, else a fraction of the largest."""
    largest = max(values, default=0.0)
    if largest <= resolution and all(float(value).is_integer() for value in values):
        return 1.0
    return largest / resolution


def with_aliases(rules: dict[str, Rule]) -> dict[str, Rule]:
    """The rules, with their other names and their opposites."""
    opposites = {"spt": "lpt", "fifo": "lifo", "lor": "mor", "lwkr": "mwkr"}
    both = dict(rules)
    for name, opposite in opposites.items():
        if name in rules:
            both[opposite] = _reversed(rules[name])
    for name, other in {"lwkr": "srpt", "mwkr": "lrpt"}.items():
        if name in both:
            both[other] = both[name]
    return both


def _reversed(rule: Rule) -> Rule:
    return lambda state: -rule(state)
