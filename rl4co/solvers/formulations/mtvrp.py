"""MTVRP: whichever features the instance has."""

from __future__ import annotations

import dataclasses

from typing import Any

import numpy as np

from rl4co.core.registry import FORMULATIONS
from rl4co.envs.routing.mtvrp.constraints import LOAD_TOLERANCE, TOLERANCE
from rl4co.solvers._problem import INFINITY, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    SHARE,
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    whole_loads,
)


@FORMULATIONS.register("mtvrp")
class MTVRPFormulation(RoutingFormulation):
    """Linehauls and backhauls, with open routes, length limits and time windows or without."""

    solvers = ("pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """What an instance does not have is not in its problem."""
        length = lengths(instance)
        loads, capacity = whole_loads(
            [instance["demand_linehaul"], instance["demand_backhaul"]],
            float(instance["vehicle_capacity"][0]),
            float(instance["capacity_original"][0]),
            LOAD_TOLERANCE,
        )
        delivery, pickup = loads
        slack = 1.0 + SHARE * TOLERANCE
        has_backhauls = bool((pickup > 0).any())
        fleet = Vehicle(
            end=None if instance["open_route"][0] else 0,
            count=len(length) - 1,
            capacity=capacity,
            max_length=float(instance["distance_limit"][0]) * slack,
        )
        problem = RoutingProblem(
            length,
            customers_of(len(length)),
            (fleet,),
            delivery=delivery,
            pickup=pickup if has_backhauls else None,
            deliveries_first=has_backhauls and instance["backhaul_class"][0] == 1,
        )
        if (instance["time_windows"][:, 1] == INFINITY).all():
            return problem
        if "duration_matrix" in instance:
            duration = lengths(instance, "duration_matrix")
        else:
            duration = length / float(instance["speed"][0])
        return dataclasses.replace(
            problem,
            duration=duration,
            service=instance["service_time"],
            windows=instance["time_windows"] * np.array([1.0, slack]),
        )
