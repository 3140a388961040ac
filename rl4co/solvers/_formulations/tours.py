"""Formulations of problems with one tour through all nodes, or several: TSP and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rl4co.solvers._formulations._base import (
    Formulation,
    Instance,
    customers_of,
    lengths,
    one_route,
)
from rl4co.solvers._problem import Objective, Route, RoutingProblem, Vehicle


def closed_tour(env: Any, instance: Instance) -> RoutingProblem:
    """TSP: one vehicle that starts and ends at node 0."""
    length = lengths(instance)
    return RoutingProblem(length, customers_of(len(length)), (Vehicle(),))


def encode_tour(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """All nodes in turn, node 0 first."""
    return [0, *one_route(routes)], 0


def decode_tour(env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
    """The nodes behind node 0, around to it."""
    start = actions.index(0)
    return [Route(0, [*actions[start + 1 :], *actions[:start]])]


def open_path(env: Any, instance: Instance) -> RoutingProblem:
    """SHPP: one vehicle from the first node to the last."""
    length = lengths(instance)
    last = len(length) - 1
    return RoutingProblem(length, tuple(range(1, last)), (Vehicle(end=last),))


def encode_path(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """All nodes in turn, from the first to the last."""
    last = len(problem.length) - 1
    return [0, *one_route(routes), *([last] if last else [])], last


def decode_path(env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
    """The nodes between the first and the last."""
    ends = (0, len(problem.length) - 1)
    return [Route(0, [node for node in actions if node not in ends])]


def several_tours(env: Any, instance: Instance) -> RoutingProblem:
    """mTSP: agents that start and end at node 0."""
    length = lengths(instance)
    agents = Vehicle(count=min(int(instance["num_agents"]), len(length) - 1))
    objective: Objective = "max" if env.cost_type == "minmax" else "sum"
    return RoutingProblem(length, customers_of(len(length)), (agents,), objective)


def encode_tours(
    env: Any, problem: RoutingProblem, routes: Sequence[Route]
) -> tuple[list[int], int]:
    """Tours one after the other with the depot in between; the last agent returns by itself."""
    actions: list[int] = []
    for route in routes:
        if route.nodes:
            actions += [0, *route.nodes]
    return actions[1:], 0


_TOUR = Formulation(closed_tour, encode_tour, lambda state: 0, decode_tour)

TOURS = {
    "tsp": _TOUR,
    "tsp_dense": _TOUR,
    "atsp": _TOUR,
    "shpp": Formulation(open_path, encode_path, lambda state: 0, decode_path),
    "mtsp": Formulation(several_tours, encode_tours),
}
