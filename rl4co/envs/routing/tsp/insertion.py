"""Tours built by insertion: customers in a given order, each where it adds least."""

from __future__ import annotations

import functools

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.tsp.cycle import distance
from rl4co.kernels import compiled

_NO_MATRIX = np.empty((0, 0))


def insert_in_order(locs: np.ndarray, order: np.ndarray, matrix: np.ndarray | None = None) -> Ints:
    """A closed tour through nodes that are inserted one after the other, each at its best place.

    With a random order this is random insertion. Takes time of order N², memory of order N; a
    matrix may be asymmetric.

    Args:
        locs: Coordinates.
        order: Nodes in the order of their insertion, each once.
        matrix: Distances in place of Euclidean ones.

    Shapes:
        locs `[N, 2]`, order `[T]`, matrix `[N, N]` → `[T]`, beginning with `order[0]`

    Example:
        >>> insert_in_order(
        ...     np.array([[0, 0], [1, 0], [1, 1], [0, 1]]), np.array([0, 2, 1, 3])
        ... ).tolist()
        [0, 1, 2, 3]
    """
    order = np.ascontiguousarray(order, dtype=np.int64)
    if order.ndim != 1:
        raise ConfigError(f"expected an order of shape [T], got {list(order.shape)}")
    table = _NO_MATRIX if matrix is None else np.ascontiguousarray(matrix, dtype=np.float64)
    return _insert_in_order(np.ascontiguousarray(locs, dtype=np.float64), table, order)


def insert_shuffled(locs: np.ndarray) -> Ints:
    """A closed tour by random insertion, whose order is always the same for a number of nodes.

    Nodes that are given along a line or an angle would make poor tours if they were inserted in
    that order.

    Shapes:
        locs `[N, 2]` → `[N]`, beginning with node 0
    """
    return insert_in_order(locs, _shuffled(len(locs)))


@functools.lru_cache(maxsize=4096)
def _shuffled(size: int) -> Ints:
    """Node 0, then the others in random order."""
    others = np.random.default_rng(size).permutation(np.arange(1, size))
    return np.concatenate([np.arange(min(size, 1)), others])


@compiled
def _insert_in_order(points: Floats, matrix: Floats, order: Ints) -> Ints:
    count = order.size
    # The tour as a linked list over the places in `order`; distances in it are kept.
    after = np.zeros(count, np.int64)
    leg = np.zeros(count)
    for new in range(1, count):
        node = order[new]
        best, place = np.inf, 0
        current = 0
        here = distance(points, matrix, order[0], node)  # from the current node
        asymmetric = matrix.shape[0] > 0
        for _ in range(new):
            ahead = after[current]
            there = distance(points, matrix, node, order[ahead])  # to the next node
            added = here + there - leg[current]
            if added < best:
                best, place = added, current
            current = ahead
            here = distance(points, matrix, order[current], node) if asymmetric else there
        after[new] = after[place]
        after[place] = new
        leg[place] = distance(points, matrix, order[place], node)
        leg[new] = distance(points, matrix, node, order[after[new]])
    tour = np.empty(count, np.int64)
    current = 0
    for i in range(count):
        tour[i] = order[current]
        current = after[current]
    return tour
