"""SVRP: one vehicle for each technician."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    split_at_depot,
)


@FORMULATIONS.register("svrp")
class SVRPFormulation(RoutingFormulation):
    """Technicians of different skills and rates."""

    solvers = ("pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Technicians cannot serve customers beyond their skills."""
        length = lengths(instance)
        staff = [
            Vehicle(
                rate=float(rate),
                forbidden_nodes=frozenset(np.flatnonzero(instance["skills"] > skill)),
            )
            for skill, rate in zip(instance["techs"], instance["tech_costs"], strict=True)
        ]
        return RoutingProblem(length, customers_of(len(length)), tuple(staff))

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """Each depot visit sends out the next technician, with something to do or not."""
        by_technician = {route.vehicle: route.nodes for route in routes if route.nodes}
        actions: list[int] = []
        for technician in range(max(by_technician) + 1):
            actions += [0, *by_technician.get(technician, [])]
        # The first technician is at the depot already; the depot must occur once.
        return (actions[1:] if 0 in actions[1:] else [*actions[1:], 0]), 0

    def decode(self, env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
        """Technicians in turn, one from each depot visit to the next."""
        parts = split_at_depot(actions)
        return [Route(technician, nodes) for technician, nodes in enumerate(parts) if nodes]
