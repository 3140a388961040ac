"""Sweep (Gillett and Miller, 1974): customers by angle around the depot, vehicle by vehicle.

The classical counterpart of learned partitions.
"""

from __future__ import annotations

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.routing._node_queue import Ints
from rl4co.envs.routing.tsp.insertion import insert_shuffled
from rl4co.envs.routing.tsp.neighbor_search import improve_tours


def sweep_order(locs: np.ndarray) -> Ints:
    """Customers by angle around the depot, nearer ones first among equal angles.

    Shapes:
        locs `[N, 2]`, the depot first → `[N - 1]`
    """
    x, y = (np.asarray(locs[1:], dtype=np.float64) - np.asarray(locs[0], dtype=np.float64)).T
    return np.lexsort((np.hypot(x, y), np.arctan2(y, x))) + 1


def sweep_partition(
    locs: np.ndarray, demand: np.ndarray, limit: float, start: int = 0, clockwise: bool = False
) -> list[Ints]:
    """Customers of each vehicle, in the order of the sweep.

    Args:
        locs: Coordinates `[N, 2]`; node 0 is the depot.
        demand: `[N]`.
        limit: Capacity of a vehicle.
        start: Index in the sweep of the first vehicle's first customer.
        clockwise: Whether to sweep clockwise.
    """
    order = sweep_order(locs)
    if len(order) and not 0 <= start < len(order):
        raise ConfigError(f"expected a start from 0 to {len(order) - 1}, got {start}")
    order = np.roll(order, -start)
    return fill_vehicles(order[::-1] if clockwise else order, demand, limit)


def fill_vehicles(order: np.ndarray, demand: np.ndarray, limit: float) -> list[Ints]:
    """Splits an order of customers into routes, each as long as the capacity allows."""
    routes: list[list[int]] = []
    load = 0.0
    for node in order.tolist():
        if not routes or load + demand[node] > limit:
            routes.append([])
            load = 0.0
        routes[-1].append(node)
        load += demand[node]
    return [np.array(route, dtype=np.int64) for route in routes]


def order_route(locs: np.ndarray, customers: np.ndarray) -> Ints:
    """A short route from the depot through the customers and back: insertion, 2-opt and Or-opt.

    Shapes:
        locs `[N, 2]`, customers `[T]` → `[T]`
    """
    nodes = np.concatenate([[0], customers])
    points = np.asarray(locs, dtype=np.float64)[nodes]
    tour = improve_tours(points[None], insert_shuffled(points)[None])[0]
    return nodes[tour][1:]


def join_routes(routes: list[Ints]) -> Ints:
    """Visits with the depot between routes; a single route ends with it."""
    parts = [np.append(route, 0) for route in routes if len(route)]
    visits = np.concatenate(parts) if parts else np.zeros(1, np.int64)
    return visits[:-1] if len(parts) > 1 else visits
