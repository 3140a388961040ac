"""Tours as rings of nodes, and their moves on neighbour lists: 2-opt and Or-opt, compiled.

A node is visited only if one of its edges has changed since, new edges lead to one of a few nearest
neighbours, and the shorter side of a tour is reversed. Memory grows with the number of nodes, not
with its square: distances come from coordinates, or from a symmetric matrix where there is one.

Drivers: descent (:mod:`~rl4co.envs.routing.tsp.neighbor_search`), iterated
(:mod:`~rl4co.envs.routing.tsp.iterated_search`) and guided search
(:mod:`~rl4co.envs.routing.tsp.guided_search`).
"""

from __future__ import annotations

import math

from typing import NamedTuple

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.neighbors import nearest_neighbors
from rl4co.envs.routing._node_queue import (
    Floats,
    Ints,
    NodeQueue,
    clear,
    is_empty,
    make_queue,
    pop,
    push,
)
from rl4co.kernels import compiled

#: Nearest neighbours that new edges may lead to. More take longer and hardly help.
NUM_NEIGHBORS = 10
#: A move must gain this share of the edges it takes out: far above the rounding of float64.
MIN_SHARE = 1e-9
#: Longest segment that Or-opt moves.
MAX_SEGMENT = 3
#: Reversals of one kick that can be undone.
JOURNAL = 1 << 14
#: No limit on the number of moves.
UNLIMITED = 1 << 62


class Cycle(NamedTuple):
    """A tour with the data of its search; the arrays from `nodes` on change in place."""

    points: Floats  # [N, 2]
    matrix: Floats  # [N, N]; [0, 0]: Euclidean distances
    neighbors: Ints  # [N, K], nearest first
    nodes: Ints  # [N]
    position: Ints  # [N], the inverse of nodes
    queue: NodeQueue  # nodes to search from
    journal: Ints  # [J, 2], positions of the latest reversals, to undo them
    reversals: Ints  # [1], number of reversals in the journal


def make_cycle(
    points: np.ndarray, neighbors: np.ndarray, matrix: np.ndarray | None = None, journal: int = 0
) -> Cycle:
    """A cycle without a tour; `journal` is the number of reversals that can be undone."""
    size = len(neighbors)
    return Cycle(
        np.ascontiguousarray(points, dtype=np.float64),
        np.empty((0, 0)) if matrix is None else np.ascontiguousarray(matrix, dtype=np.float64),
        np.ascontiguousarray(neighbors, dtype=np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        make_queue(size),
        np.zeros((journal, 2), np.int64),
        np.zeros(1, np.int64),
    )


def neighbor_lists(
    points: np.ndarray, matrix: np.ndarray | None, num_neighbors: int = NUM_NEIGHBORS
) -> Ints:
    """Nearest neighbours `[N, K]` by coordinates `[N, 2]`, or by a matrix `[N, N]`."""
    check_at_least(1, num_neighbors=num_neighbors)
    size = len(points) if matrix is None else len(matrix)
    count = min(num_neighbors, size - 1)
    if matrix is None:
        return nearest_neighbors(points, count)
    apart = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :count].astype(np.int64)


# --------------------------------------------------------------------------------------------------
# Kernels. A tour is an array of nodes, read as a ring in either direction. All changes are
# reversals, which are their own inverse, so a journal of them can undo a search.


@compiled
def distance(points: Floats, matrix: Floats, i: int, j: int) -> float:
    """Distance of two nodes, by the matrix if there is one."""
    if matrix.shape[0] > 0:
        return matrix[i, j]
    x = points[i, 0] - points[j, 0]
    y = points[i, 1] - points[j, 1]
    return math.sqrt(x * x + y * y)


@compiled
def apart(c: Cycle, i: int, j: int) -> float:
    """Distance of two nodes of a cycle."""
    return distance(c.points, c.matrix, i, j)


@compiled
def step(c: Cycle, node: int, forward: bool) -> int:
    """The node after (or before) a node."""
    size = c.nodes.size
    place = c.position[node] + (1 if forward else -1)
    if place == size:
        place = 0
    elif place < 0:
        place = size - 1
    return c.nodes[place]


@compiled
def load_tour(c: Cycle, tour: Ints) -> None:
    """Copies a tour into the cycle and empties queue and journal."""
    clear(c.queue)
    c.reversals[0] = 0
    for i in range(tour.size):
        c.nodes[i] = tour[i]
        c.position[tour[i]] = i


@compiled
def swap_ends(c: Cycle, i: int, j: int, count: int) -> None:
    """Exchanges `count` pairs of positions from both ends of i..j inwards."""
    size = c.nodes.size
    for _ in range(count):
        a, b = c.nodes[i], c.nodes[j]
        c.nodes[i], c.nodes[j] = b, a
        c.position[a], c.position[b] = j, i
        i += 1
        if i == size:
            i = 0
        j -= 1
        if j < 0:
            j = size - 1


@compiled
def reverse(c: Cycle, i: int, j: int) -> None:
    """Reverses the positions i..j of the ring, or all others if these are fewer."""
    size = c.nodes.size
    length = (j - i) % size + 1
    if 2 * length > size:
        i, j = (j + 1) % size, (i - 1) % size
        length = size - length
    if c.reversals[0] < c.journal.shape[0]:
        c.journal[c.reversals[0], 0] = i
        c.journal[c.reversals[0], 1] = j
        c.reversals[0] += 1
    swap_ends(c, i, j, length // 2)


@compiled
def undo(c: Cycle) -> None:
    """Undoes all reversals in the journal."""
    size = c.nodes.size
    for entry in range(c.reversals[0] - 1, -1, -1):
        i, j = c.journal[entry, 0], c.journal[entry, 1]
        length = (j - i) % size + 1
        # An empty reversal is recorded as one of all positions, which `reverse` never makes.
        swap_ends(c, i, j, length // 2 if 2 * length <= size else 0)
    c.reversals[0] = 0


@compiled
def exchange(c: Cycle, a: int, b: int, x: int, y: int) -> None:
    """Replaces the edges ab and xy by ax and by; b is beside a where y is beside x."""
    if step(c, a, True) == b:
        reverse(c, c.position[b], c.position[x])
    else:
        reverse(c, c.position[a], c.position[y])


@compiled
def improve_node(c: Cycle, u: int) -> float:
    """Applies the best move that gives u a nearer neighbour; its gain, 0 if there is none."""
    best, kind = 0.0, 0
    v = x0 = y0 = s0 = p0 = u
    size = c.nodes.size
    longest = min(MAX_SEGMENT, size - 3)
    for forward in (True, False):
        after, before = step(c, u, forward), step(c, u, not forward)
        old = apart(c, u, after)
        for x in c.neighbors[u]:
            near = apart(c, u, x)
            if near >= old:
                break
            y = step(c, x, forward)
            taken = old + apart(c, x, y)
            gain = taken - near - apart(c, after, y)
            if gain > best and gain > MIN_SHARE * taken:
                best, kind, v, x0, y0 = gain, 1, after, x, y
        # Or-opt: the segment from u on moves beside a neighbour of u.
        tail = u
        entry = apart(c, before, u)
        for length in range(1, longest + 1):
            if length > 1:
                tail = step(c, tail, forward)
            after = step(c, tail, forward)
            if after == before:
                break
            taken = entry + apart(c, tail, after)
            freed = taken - apart(c, before, after)
            for x in c.neighbors[u]:
                near = apart(c, u, x)
                if near >= freed:
                    break
                if _offset(c, u, x, forward) < length:
                    continue
                for side in (True, False):
                    y = step(c, x, forward == side)
                    if _offset(c, u, y, forward) < length:
                        continue
                    gap = apart(c, x, y)
                    gain = freed + gap - near - apart(c, tail, y)
                    if gain > best and gain > MIN_SHARE * (taken + gap):
                        best, kind = gain, 2 if side else 3
                        x0, y0, s0, p0, v = x, y, tail, before, after
    if kind == 1:
        exchange(c, u, v, x0, y0)
        _wake(c, u, v, x0, y0)
    elif kind > 1:
        _move_segment(c, p0, u, s0, v, x0, y0, kind == 2)
        _wake(c, u, s0, x0, y0)
        push(c.queue, p0)
        push(c.queue, v)
    return best


@compiled
def _offset(c: Cycle, u: int, x: int, forward: bool) -> int:
    """Steps from u to x in a direction."""
    steps = c.position[x] - c.position[u]
    return (steps if forward else -steps) % c.nodes.size


@compiled
def _wake(c: Cycle, a: int, b: int, x: int, y: int) -> None:
    push(c.queue, a)
    push(c.queue, b)
    push(c.queue, x)
    push(c.queue, y)


@compiled
def _move_segment(
    c: Cycle, before: int, head: int, tail: int, after: int, x: int, y: int, same_way: bool
) -> None:
    """Moves head..tail between x and y, head beside x, by two or three reversals."""
    first, last = (x, y) if same_way else (y, x)
    exchange(c, before, head, first, last)
    exchange(c, before, first, after, tail)
    if same_way:
        exchange(c, x, tail, head, y)


@compiled
def improve_queued(c: Cycle, budget: int) -> tuple[float, int]:
    """Searches until the queue is empty; the total gain, and the number of moves."""
    total, moves = 0.0, 0
    capacity = c.journal.shape[0]
    while not is_empty(c.queue) and moves < budget:
        u = pop(c.queue)
        while moves < budget and (capacity == 0 or c.reversals[0] + 4 <= capacity):
            gain = improve_node(c, u)
            if gain <= 0.0:
                break
            total += gain
            moves += 1
    clear(c.queue)  # a search that used up its budget must not affect the next one
    return total, moves


@compiled
def descend(c: Cycle, tour: Ints, budget: int) -> None:
    """Improves a tour in place until no move helps; its first node stays first."""
    load_tour(c, tour)
    for node in tour:
        push(c.queue, node)
    improve_queued(c, budget)
    store_tour(c, tour, tour[0])


@compiled
def store_tour(c: Cycle, out: Ints, first: int) -> None:
    """Writes the tour to `out`, beginning with a node."""
    size, place = c.nodes.size, c.position[first]
    for i in range(size):
        out[i] = c.nodes[place]
        place = place + 1 if place + 1 < size else 0


@compiled
def tour_cost(points: Floats, matrix: Floats, tour: Ints) -> float:
    """Length of a closed tour."""
    total = distance(points, matrix, tour[-1], tour[0])
    for i in range(tour.size - 1):
        total += distance(points, matrix, tour[i], tour[i + 1])
    return total
