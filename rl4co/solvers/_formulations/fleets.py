"""Formulations of problems in which a fleet serves all customers from one depot: VRPs."""

from __future__ import annotations

import dataclasses

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl4co.envs.routing.cvrpmvc.env import FLEET_TOLERANCE
from rl4co.envs.routing.cvrptw.env import TIME_TOLERANCE
from rl4co.envs.routing.cvrptw.schedule import time_matrix
from rl4co.envs.routing.mtvrp.constraints import TOLERANCE
from rl4co.solvers._formulations._base import (
    SHARE,
    Formulation,
    Instance,
    customers_of,
    lengths,
    routes_by_depot,
    split_at_depot,
    whole_loads,
)
from rl4co.solvers._problem import INFINITY, Route, RoutingProblem, Vehicle


def capacitated(env: Any, instance: Instance) -> RoutingProblem:
    """CVRP: as many vehicles as there are customers."""
    length = lengths(instance)
    (demand,), capacity = whole_loads(
        [instance["demand"]],
        float(instance["vehicle_capacity"][0]),
        float(instance["capacity"][0]),
        env.capacity_tolerance,
    )
    fleet = Vehicle(count=len(length) - 1, capacity=capacity)
    return RoutingProblem(length, customers_of(len(length)), (fleet,), delivery=demand)


def scarce_vehicles(env: Any, instance: Instance) -> RoutingProblem:
    """CVRPMVC: no more vehicles than there are.

    The environment takes more of them where no customer fits a vehicle any more; such solutions
    are not looked for.
    """
    problem = capacitated(env, instance)
    (fleet,) = problem.vehicles
    available = int(np.floor(instance["max_vehicle"][0] + FLEET_TOLERANCE))
    fleet = dataclasses.replace(fleet, count=min(available, fleet.count))
    return dataclasses.replace(problem, vehicles=(fleet,))


def unsplit_deliveries(env: Any, instance: Instance) -> RoutingProblem:
    """SDVRP in which nobody is served twice: a CVRP of the customers with a demand.

    Solutions are valid, but split deliveries may be better, so no solver that promises to look for
    the best solution may be the default.
    """
    problem = capacitated(env, instance)
    served = tuple(node for node in problem.customers if instance["demand"][node] > 0)
    return dataclasses.replace(problem, customers=served)


def time_windows(env: Any, instance: Instance) -> RoutingProblem:
    """CVRPTW: vehicles leave when the depot opens."""
    windows = instance["time_windows"].copy()
    windows[:, 1] += SHARE * TIME_TOLERANCE * windows[0, 1]
    return dataclasses.replace(
        capacitated(env, instance),
        duration=lengths(instance, time_matrix(instance) or ""),
        service=instance["durations"],
        windows=windows,
    )


def multi_task(env: Any, instance: Instance) -> RoutingProblem:
    """MTVRP: whichever features the instance has."""
    length = lengths(instance)
    loads, capacity = whole_loads(
        [instance["demand_linehaul"], instance["demand_backhaul"]],
        float(instance["vehicle_capacity"][0]),
        float(instance["capacity_original"][0]),
        TOLERANCE,
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


def technicians(env: Any, instance: Instance) -> RoutingProblem:
    """SVRP: one vehicle for each technician."""
    length = lengths(instance)
    staff = [
        Vehicle(rate=float(rate), refuses=frozenset(np.flatnonzero(instance["skills"] > skill)))
        for skill, rate in zip(instance["techs"], instance["tech_costs"], strict=True)
    ]
    return RoutingProblem(length, customers_of(len(length)), tuple(staff))


def encode_technicians(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """Each depot visit sends out the next technician, with something to do or not."""
    by_technician = {route.vehicle: route.nodes for route in routes if route.nodes}
    actions: list[int] = []
    for technician in range(max(by_technician) + 1):
        actions += [0, *by_technician.get(technician, [])]
    # The first technician is at the depot already; the depot must occur once.
    return (actions[1:] if 0 in actions[1:] else [*actions[1:], 0]), 0


def decode_technicians(env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
    """Technicians in turn, one from each depot visit to the next."""
    parts = split_at_depot(actions)
    return [Route(technician, nodes) for technician, nodes in enumerate(parts) if nodes]


FLEETS = {
    "cvrp": Formulation(capacitated, routes_by_depot),
    "cvrpmvc": Formulation(scarce_vehicles, routes_by_depot),
    "cvrptw": Formulation(time_windows, routes_by_depot),
    "mtvrp": Formulation(multi_task, routes_by_depot),
    "sdvrp": Formulation(unsplit_deliveries, routes_by_depot),
    "svrp": Formulation(technicians, encode_technicians, decode=decode_technicians),
}
