"""TSP: one vehicle that starts and ends at node 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    one_route,
)


@FORMULATIONS.register("tsp")
class TSPFormulation(RoutingFormulation):
    """A closed tour through all nodes."""

    solvers = ("lkh", "pyvrp", "ortools", "insertion")
    large_solver: ClassVar[str | None] = "ils"
    is_plain = True

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Node 0 plays the depot."""
        length = lengths(instance)
        return RoutingProblem(length, customers_of(len(length)), (Vehicle(),))

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """All nodes in turn, node 0 first."""
        return [0, *one_route(routes)], 0

    def decode(self, env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
        """The nodes behind node 0, around to it."""
        start = actions.index(0)
        return [Route(0, [*actions[start + 1 :], *actions[:start]])]

    def count_depots(self, state: Mapping[str, Tensor]) -> int:
        """None: all nodes are alike."""
        return 0
