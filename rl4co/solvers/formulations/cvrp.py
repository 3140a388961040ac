"""CVRP: as many vehicles as there are customers."""

from __future__ import annotations

from typing import Any, ClassVar

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    whole_loads,
)


@FORMULATIONS.register("cvrp")
class CVRPFormulation(RoutingFormulation):
    """Vehicles of one kind that deliver from one depot."""

    solvers: ClassVar[tuple[str, ...]] = ("pyvrp", "ortools", "insertion")
    large_solver: ClassVar[str | None] = "ils"
    is_plain: ClassVar[bool] = True

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Whole units of demand where the instance has such."""
        length = lengths(instance)
        (demand,), capacity = whole_loads(
            [instance["demand"]],
            float(instance["vehicle_capacity"][0]),
            float(instance["capacity"][0]),
            env.capacity_tolerance,
        )
        fleet = Vehicle(count=len(length) - 1, capacity=capacity)
        return RoutingProblem(length, customers_of(len(length)), (fleet,), delivery=demand)
