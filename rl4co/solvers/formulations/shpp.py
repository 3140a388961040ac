"""SHPP: one vehicle from the first node to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    lengths,
    one_route,
)


@FORMULATIONS.register("shpp")
class SHPPFormulation(RoutingFormulation):
    """An open path through all nodes, between given ends."""

    solvers = ("lkh", "pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """The ends are no customers."""
        length = lengths(instance)
        last = len(length) - 1
        return RoutingProblem(length, tuple(range(1, last)), (Vehicle(end=last),))

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """All nodes in turn, from the first to the last."""
        last = len(problem.length) - 1
        return [0, *one_route(routes), *([last] if last else [])], last

    def decode(self, env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
        """The nodes between the first and the last."""
        ends = (0, len(problem.length) - 1)
        return [Route(0, [node for node in actions if node not in ends])]

    def count_depots(self, state: Mapping[str, Tensor]) -> int:
        """None: masks keep the ends in their places."""
        return 0
