"""Routes as linked lists, which searches for capacitated routes change in place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rl4co.envs.routing._node_queue import (
    Flags,
    Floats,
    Ints,
    NodeQueue,
    clear,
    make_queue,
    push,
)
from rl4co.envs.routing.tsp.cycle import distance, neighbor_lists
from rl4co.kernels import compiled

#: Nearest customers that new edges may lead to.
NUM_NEIGHBORS = 15


class Fleet(NamedTuple):
    """Routes as linked lists with data for their moves; most arrays change in place.

    Nodes N ... N + R - 1 are the depot as the beginning and end of each of R routes.
    """

    points: Floats  # [N, 2]
    matrix: Floats  # [N, N]; [0, 0]: Euclidean distances
    neighbors: Ints  # [N, K], customers, nearest first; the row of the depot is not read
    demand: Floats  # [N + R], 0 for depots
    limit: Floats  # [1], capacity of a vehicle
    after: Ints  # [N + R]
    before: Ints  # [N + R]
    route: Ints  # [N + R]
    position: Ints  # [N + R], 0 for the depot
    carried: Floats  # [N + R], load of the route up to and including a node
    load: Floats  # [R]
    size: Ints  # [R], customers of a route
    queue: NodeQueue  # customers to search from
    changed: Flags  # [R], routes that SWAP* has not seen as they are
    first: Ints  # [N], scratch
    second: Ints  # [N], scratch


def customer_lists(
    points: np.ndarray, num_neighbors: int = NUM_NEIGHBORS, matrix: np.ndarray | None = None
) -> Ints:
    """Nearest customers of each customer `[N, K]`; the row of the depot is not used."""
    if len(points) < 3:
        return np.empty((len(points), 0), dtype=np.int64)
    apart = None if matrix is None else matrix[1:, 1:]
    lists = neighbor_lists(points[1:], apart, num_neighbors) + 1
    return np.concatenate([lists[:1], lists])


def make_fleet(
    points: np.ndarray,
    demand: np.ndarray,
    limit: float,
    neighbors: np.ndarray,
    visits: np.ndarray,
    matrix: np.ndarray | None = None,
    spare: int = 0,
) -> Fleet:
    """The fleet of a solution: visits with a depot before, between and after routes.

    Args:
        points: Coordinates `[N, 2]`.
        demand: `[N]`.
        limit: Capacity of a vehicle.
        neighbors: `[N, K]`, see :func:`customer_lists`.
        visits: `[L]`; doubled depots do not count.
        matrix: Symmetric distances in place of Euclidean ones.
        spare: Empty routes to add.
    """
    size = len(points)
    count = int(((visits[:-1] == 0) & (visits[1:] != 0)).sum()) + spare
    total = size + count
    fleet = Fleet(
        np.ascontiguousarray(points, dtype=np.float64),
        np.empty((0, 0)) if matrix is None else np.ascontiguousarray(matrix, dtype=np.float64),
        np.ascontiguousarray(neighbors, dtype=np.int64),
        np.concatenate([demand, np.zeros(count)]).astype(np.float64),
        np.array([limit], dtype=np.float64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total, np.int64),
        np.zeros(total),
        np.zeros(count),
        np.zeros(count, np.int64),
        make_queue(size),
        np.ones(count, np.bool_),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
    )
    load_visits(fleet, np.ascontiguousarray(visits, dtype=np.int64))
    return fleet


def visits_of(fleet: Fleet) -> Ints:
    """Customers with the depot between routes, without empty ones; a single route ends with it."""
    size, count = len(fleet.points), len(fleet.load)
    out = np.zeros(size + count + 1, np.int64)
    used = _write_visits(fleet, out)
    return out[: max(used, size)]


def fleet_cost(fleet: Fleet) -> float:
    """Total length of the routes."""
    return float(_total_length(fleet))


# --------------------------------------------------------------------------------------------------
# Kernels


@compiled
def between(f: Fleet, i: int, j: int) -> float:
    """Distance of two nodes, depots of routes included."""
    size = len(f.points)
    return distance(f.points, f.matrix, i if i < size else 0, j if j < size else 0)


@compiled
def refresh(f: Fleet, r: int) -> None:
    """Recomputes the data of a route after its links have changed."""
    depot = len(f.points) + r
    load, place, node = 0.0, 0, f.after[depot]
    f.position[depot], f.route[depot], f.carried[depot] = 0, r, 0.0
    while node != depot:
        place += 1
        load += f.demand[node]
        f.position[node], f.route[node], f.carried[node] = place, r, load
        node = f.after[node]
    f.load[r], f.size[r] = load, place
    f.changed[r] = True


@compiled
def link(f: Fleet, a: int, b: int) -> None:
    """Lets b follow a."""
    f.after[a] = b
    f.before[b] = a


@compiled
def unlink(f: Fleet, node: int) -> None:
    """Removes a node from its route."""
    link(f, f.before[node], f.after[node])


@compiled
def insert(f: Fleet, node: int, place: int) -> None:
    """Puts a node behind another one."""
    link(f, node, f.after[place])
    link(f, place, node)


@compiled
def enqueue(f: Fleet, node: int) -> None:
    """Lets the search visit a customer again; depots are ignored."""
    if node < len(f.points):
        push(f.queue, node)


@compiled
def enqueue_all(f: Fleet) -> None:
    """Lets the search visit all customers."""
    for node in range(1, len(f.points)):
        enqueue(f, node)


@compiled
def load_visits(f: Fleet, visits: Ints) -> None:
    """Sets the routes to those of a solution."""
    size, r = len(f.points), -1
    tail = 0
    for i in range(1, visits.size):
        node = visits[i]
        if node == 0:
            continue
        if visits[i - 1] == 0:
            if r >= 0:
                link(f, tail, size + r)
            r += 1
            tail = size + r
        link(f, tail, node)
        tail = node
    if r >= 0:
        link(f, tail, size + r)
    for empty in range(r + 1, f.load.size):
        link(f, size + empty, size + empty)
    for route in range(f.load.size):
        refresh(f, route)
    clear(f.queue)


@compiled
def _write_visits(f: Fleet, out: Ints) -> int:
    used = 0
    for r in range(f.load.size):
        if f.size[r] == 0:
            continue
        if used > 0:
            out[used] = 0
            used += 1
        node = f.after[len(f.points) + r]
        while node < len(f.points):
            out[used] = node
            used += 1
            node = f.after[node]
    return used


@compiled
def _total_length(f: Fleet) -> float:
    total = 0.0
    for r in range(f.load.size):
        total += route_length(f, f.after, r)
    return total


@compiled
def route_length(f: Fleet, after: Ints, r: int) -> float:
    """Length of a route by its links, which may be those of another state of the fleet."""
    depot = len(f.points) + r
    node, total = depot, 0.0
    while True:
        total += between(f, node, after[node])
        node = after[node]
        if node == depot:
            return total
