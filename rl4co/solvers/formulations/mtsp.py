"""mTSP: agents that start and end at node 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Objective, Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    chain_routes,
    customers_of,
    lengths,
)


@FORMULATIONS.register("mtsp")
class MTSPFormulation(RoutingFormulation):
    """Several tours; by default the longest one counts, which not all solvers can minimise."""

    solvers = ("ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """No more agents than customers."""
        length = lengths(instance)
        agents = Vehicle(count=min(int(instance["num_agents"]), len(length) - 1))
        objective: Objective = "max" if env.cost_type == "minmax" else "sum"
        return RoutingProblem(length, customers_of(len(length)), (agents,), objective)

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """Tours one after the other with the depot in between; the last agent returns by itself."""
        return chain_routes(routes), 0
