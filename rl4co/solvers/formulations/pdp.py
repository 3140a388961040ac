"""PDP: one vehicle that carries any number of orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    one_route,
    orders_of,
)


@FORMULATIONS.register("pdp")
class PDPFormulation(RoutingFormulation):
    """One tour in which pickups come before their deliveries."""

    solvers = ("pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Pickups and deliveries are pairs on one route."""
        length = lengths(instance)
        customers = customers_of(len(length))
        return RoutingProblem(length, customers, (Vehicle(),), orders=orders_of(customers))

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """The customers in turn, behind the depot if the start is a step."""
        start = [0] if env.force_start_at_depot else []
        return [*start, *one_route(routes)], 0
