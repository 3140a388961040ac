"""Savings (Clarke and Wright, 1964) on neighbour lists, for tours and routes of any size.

Every customer begins in a separate route. Pairs of customers are visited in descending order of
the saving $s_{ij} = d_{0i} + d_{0j} - d_{ij}$, and the routes that end at them are joined if the
vehicle can carry both. Only pairs of near neighbours are considered; rounds
of new pairs of route ends follow until no route can be joined.
"""

from __future__ import annotations

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.cvrp.fleet import customer_lists
from rl4co.kernels import compiled

#: Nearest customers of each that a saving is computed for.
NUM_NEIGHBORS = 100
#: Up to this number of route ends, all pairs are considered.
MAX_ALL_PAIRS = 1000


def savings_routes(
    locs: np.ndarray,
    demand: np.ndarray,
    limit: float,
    matrix: np.ndarray | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
) -> Ints:
    """Customers with 0 between routes; one route if nothing limits vehicles.

    Args:
        locs: Coordinates; node 0 is the depot.
        demand: Demand of the nodes, 0 at the depot.
        limit: Capacity of a vehicle; each customer fits. Infinity makes a tour.
        matrix: Symmetric distances in place of Euclidean ones.
        num_neighbors: Neighbours of a customer that it may be joined with in the first round.

    Shapes:
        locs `[N, 2]`, demand `[N]`, matrix `[N, N]` → `[T]`

    Example:
        >>> line = np.array([[0, 0], [1, 0], [2, 0], [-1, 0], [-2, 0]])
        >>> savings_routes(line, np.array([0, 1, 1, 1, 1]), 2).tolist()
        [1, 2, 0, 3, 4]
    """
    check_at_least(1, num_neighbors=num_neighbors)
    locs = np.asarray(locs, dtype=np.float64)
    size = len(locs)
    links = np.full((size, 2), -1, np.int64)
    root, load = np.arange(size), np.array(demand, dtype=np.float64)
    # A tour visits all, so joining its parts may cost more than returning to the depot.
    least = -np.inf if limit == np.inf else 0.0
    while True:
        ends = np.flatnonzero(links[1:, 1] < 0) + 1  # [M], customers with a free side
        first, second = _pairs(locs, ends, matrix, num_neighbors)
        saved = _savings(locs, first, second, matrix)
        order = np.argsort(-saved, kind="stable")
        order = order[saved[order] > least]
        if not _join(first[order], second[order], links, root, load, limit):
            return _write_routes(links)


def _pairs(
    locs: np.ndarray, ends: np.ndarray, matrix: np.ndarray | None, num_neighbors: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of customers, each once: all, or near neighbours only."""
    if len(ends) <= MAX_ALL_PAIRS:
        first, second = np.triu_indices(len(ends), 1)
    else:
        nodes = np.append(0, ends)
        apart = None if matrix is None else matrix[np.ix_(nodes, nodes)]
        lists = customer_lists(locs[nodes], min(num_neighbors, len(ends) - 1), apart)[1:] - 1
        first = np.repeat(np.arange(len(ends)), lists.shape[1])
        second = lists.ravel()
        # Near neighbours of each other are in both lists.
        low, high = np.minimum(first, second), np.maximum(first, second)
        first, second = np.divmod(np.unique(low * len(ends) + high), len(ends))
    return ends[first], ends[second]


def _savings(
    locs: np.ndarray, first: np.ndarray, second: np.ndarray, matrix: np.ndarray | None
) -> np.ndarray:
    if matrix is not None:
        return np.asarray(matrix[0, first] + matrix[0, second] - matrix[first, second])
    away = np.hypot(*(locs - locs[0]).T)  # [N]
    return np.asarray(away[first] + away[second] - np.hypot(*(locs[first] - locs[second]).T))


# --------------------------------------------------------------------------------------------------
# Kernels


@compiled
def _find(root: Ints, node: int) -> int:
    """The customer that stands for a route."""
    while root[node] != node:
        root[node] = root[root[node]]
        node = root[node]
    return node


@compiled
def _join(first: Ints, second: Ints, links: Ints, root: Ints, load: Floats, limit: float) -> int:
    """Joins the routes that end at pairs of customers in this order; returns the number of joins.

    Args:
        first: Customers `[P]`.
        second: Customers `[P]`.
        links: Customers beside each one on its route `[N, 2]`, -1 for the depot.
        root: Parents in the trees of customers of a route `[N]`.
        load: Load of the route of each root `[N]`.
        limit: Capacity of a vehicle.
    """
    joined = 0
    for pair in range(first.size):
        i, j = first[pair], second[pair]
        if links[i, 1] >= 0 or links[j, 1] >= 0:
            continue
        a, b = _find(root, i), _find(root, j)
        if a == b or load[a] + load[b] > limit:
            continue
        links[i, 0 if links[i, 0] < 0 else 1] = j
        links[j, 0 if links[j, 0] < 0 else 1] = i
        root[b] = a
        load[a] += load[b]
        joined += 1
    return joined


@compiled
def _write_routes(links: Ints) -> Ints:
    size = links.shape[0]
    seen = np.zeros(size, np.bool_)
    out = np.zeros(2 * size, np.int64)
    used = 0
    for start in range(1, size):
        if seen[start] or links[start, 1] >= 0:
            continue  # routes are written from their ends
        used += used > 0  # the depot between routes
        before, node = -1, start
        while node >= 0:
            seen[node] = True
            out[used] = node
            used += 1
            following = links[node, 0] if links[node, 0] != before else links[node, 1]
            before, node = node, following
    return out[:used]
