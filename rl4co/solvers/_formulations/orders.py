"""Formulations of problems with pickups and their deliveries: PDP and MDCPDP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl4co.core.errors import UnsupportedError
from rl4co.solvers._formulations._base import (
    Formulation,
    Instance,
    customers_of,
    lengths,
    one_route,
)
from rl4co.solvers._problem import Array, Objective, Route, RoutingProblem, Vehicle

#: Reward mode of the MDCPDP → objective.
OBJECTIVES: dict[str, Objective] = {"minsum": "sum", "minmax": "max", "lateness": "lateness"}


def pickup_and_delivery(env: Any, instance: Instance) -> RoutingProblem:
    """PDP: one vehicle that carries any number of orders."""
    length = lengths(instance)
    customers = customers_of(len(length))
    return RoutingProblem(length, customers, (Vehicle(),), orders=_orders(customers))


def encode_pickups(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """The customers in turn, behind the depot if the start is a step."""
    start = [0] if env.force_start_at_depot else []
    return [*start, *one_route(routes)], 0


def several_depots(env: Any, instance: Instance) -> RoutingProblem:
    """MDCPDP: one vehicle in each depot."""
    if env.reward_mode not in OBJECTIVES:
        raise UnsupportedError(
            f"expected a reward_mode among {', '.join(OBJECTIVES)} for solvers, "
            f"got {env.reward_mode!r}, which is not linear"
        )
    length = _distances(env, instance)
    customers = customers_of(len(length), len(instance["capacity"]))
    closed = env.problem_mode == "close"
    vehicles = tuple(
        Vehicle(start=depot, end=depot if closed else None, capacity=int(capacity))
        for depot, capacity in enumerate(instance["capacity"])
    )
    return RoutingProblem(
        length,
        customers,
        vehicles,
        OBJECTIVES[env.reward_mode],
        orders=_orders(customers),
        lateness_weight=float(instance["lateness_weight"][0]),
    )


def encode_vehicles(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """Each depot twice, its customers in between; the last return is not a step."""
    actions: list[int] = []
    for depot, nodes in routes:
        if nodes:
            actions += [depot, *nodes, depot]
    return actions[:-1], actions[-1]


def decode_vehicles(env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
    """Customers belong to the depot before them; each vehicle leaves once at most."""
    served: dict[int, list[int]] = {}
    depot = 0
    for node in actions:
        if node < len(problem.vehicles):
            depot = node
        else:
            served.setdefault(depot, []).append(node)
    return [Route(vehicle, nodes) for vehicle, nodes in served.items()]


def _orders(customers: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Pickups are in the first half, their deliveries in the same order in the second."""
    half = len(customers) // 2
    return tuple(zip(customers[:half], customers[half:], strict=True))


def _distances(env: Any, instance: Instance) -> Array:
    if env.dist_mode == "L2" or "cost_matrix" in instance:
        return lengths(instance)
    apart = np.abs(instance["locs"][:, None] - instance["locs"][None, :])  # [N, N, 2]
    manhattan: Array = apart.sum(-1)
    return manhattan


ORDERS = {
    "pdp": Formulation(pickup_and_delivery, encode_pickups),
    "mdcpdp": Formulation(
        several_depots,
        encode_vehicles,
        lambda state: state["capacity"].shape[-1],
        decode_vehicles,
    ),
}
