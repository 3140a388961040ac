"""Cheapest insertion for tours and capacitated routes of any size.

Each step inserts the customer whose best position costs least. Candidate positions are a new route
and those beside the nearest neighbours of a customer: all, with as many neighbours as customers.
"""

from __future__ import annotations

import heapq

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.cvrp.fleet import (
    Fleet,
    between,
    customer_lists,
    insert,
    make_fleet,
    refresh,
    visits_of,
)
from rl4co.kernels import compiled

#: Nearest neighbours of a customer that define its candidate positions.
NUM_NEIGHBORS = 60
#: Two customers, and a depot.
_SMALLEST = 3


def cheapest_insertion(
    locs: np.ndarray,
    demand: np.ndarray,
    limit: float,
    max_routes: int | None = None,
    matrix: np.ndarray | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
) -> Ints | None:
    """Customers with 0 between routes; None if some customer fits no route that may be used.

    Args:
        locs: Coordinates; node 0 is the depot.
        demand: Demand of the nodes, 0 at the depot.
        limit: What a vehicle carries.
        max_routes: Most routes; 1 with demands of zero makes a tour.
        matrix: Symmetric distances in place of Euclidean ones.
        num_neighbors: Neighbours of a customer that define its candidate positions.

    Shapes:
        locs `[N, 2]`, demand `[N]`, matrix `[N, N]` → `[T]`
    """
    size = len(locs)
    check_at_least(1, max_routes=max_routes)
    if size < _SMALLEST:
        return np.arange(1, size)
    lists = customer_lists(locs, min(num_neighbors, size - 2), matrix)
    routes = size - 1 if max_routes is None else min(max_routes, size - 1)
    fleet = make_fleet(locs, demand, limit, lists, np.zeros(2, np.int64), matrix, routes)
    if not _build(fleet):
        return None
    return np.trim_zeros(visits_of(fleet))


@compiled
def _build(f: Fleet) -> bool:
    """Places all customers of a fleet of empty routes; False if one fits nowhere."""
    size = len(f.points)
    cost = np.full(size, np.inf)
    place = np.full(size, -1, np.int64)
    f.route[:size] = -1
    heap = [(0.0, 0)]
    for node in range(1, size):
        _consider(f, node, size, cost, place)
        heapq.heappush(heap, (cost[node], node))
    used = 0  # routes with customers; the next one is open to all
    while len(heap) > 0:
        entry_cost, node = heapq.heappop(heap)
        if node == 0 or f.route[node] >= 0 or entry_cost != cost[node]:
            continue  # placed already, or a better entry is to come
        _find_place(f, node, used, cost, place)
        if place[node] < 0:
            return False
        if cost[node] > entry_cost:  # its place was taken, or the vehicle is too full by now
            heapq.heappush(heap, (cost[node], node))
            continue
        target = place[node]
        r = f.route[target]
        insert(f, node, target)
        f.route[node] = r
        f.load[r] += f.demand[node]
        if r == used:
            used += 1
        for other in f.neighbors[node]:
            if f.route[other] < 0:
                before = cost[other]
                _consider(f, other, f.before[node], cost, place)
                _consider(f, other, node, cost, place)
                if cost[other] < before:
                    heapq.heappush(heap, (cost[other], other))
    for r in range(f.load.size):
        refresh(f, r)
    return True


@compiled
def _consider(f: Fleet, node: int, target: int, cost: Floats, place: Ints) -> None:
    """Notes the place behind a node if it is feasible and better than the one known."""
    if f.load[f.route[target]] + f.demand[node] > f.limit[0]:
        return
    following = f.after[target]
    added = between(f, target, node) + between(f, node, following)
    if following != target:  # an empty route is not driven
        added -= between(f, target, following)
    if added < cost[node]:
        cost[node], place[node] = added, target


@compiled
def _find_place(f: Fleet, node: int, used: int, cost: Floats, place: Ints) -> None:
    """The best place beside the neighbours of a customer, or in a new route, or anywhere."""
    size = len(f.points)
    cost[node], place[node] = np.inf, -1
    for other in f.neighbors[node]:
        if f.route[other] >= 0:
            _consider(f, node, f.before[other], cost, place)
            _consider(f, node, other, cost, place)
    if used < f.load.size:
        _consider(f, node, size + used, cost, place)
    if place[node] >= 0:
        return
    for r in range(used):
        target = size + r
        while True:
            _consider(f, node, target, cost, place)
            target = f.after[target]
            if target == size + r:
                break
