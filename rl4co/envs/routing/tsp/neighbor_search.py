"""2-opt and Or-opt on neighbour lists, for symmetric tours of any length.

A node is looked at only if one of its edges has changed since (a queue in place of don't-look
bits), new edges lead to one of a few nearest neighbours, and the shorter side of a tour is
reversed. Memory grows with the number of nodes, not with its square: distances come from
coordinates, or from a symmetric matrix where there is one.

:mod:`rl4co.envs.routing.tsp.local_search` is for asymmetric matrices, and looks at all moves.
"""

from __future__ import annotations

import math

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rl4co.core.errors import ConfigError, InvalidInstanceError, InvalidSolutionError
from rl4co.core.neighbors import nearest_neighbors
from rl4co.kernels import compiled, run_in_chunks

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]

#: Nearest neighbours that new edges may lead to. More take longer and hardly help.
NUM_NEIGHBORS = 10
#: A move must gain this share of the edges it takes out: far above the rounding of float64.
MIN_SHARE = 1e-9
#: Longest segment that Or-opt moves.
MAX_SEGMENT = 3
#: Reversals of one kick that can be taken back.
JOURNAL = 1 << 14
#: No limit on the number of moves.
UNLIMITED = 1 << 62


class Cycle(NamedTuple):
    """A tour and what its search needs; the arrays from `nodes` on change in place."""

    points: Floats  # [N, 2]
    matrix: Floats  # [N, N]; [0, 0]: Euclidean distances
    neighbors: Ints  # [N, K], nearest first
    nodes: Ints  # [N]
    position: Ints  # [N], the inverse of nodes
    queue: Ints  # [N], nodes to look at, as a ring
    queued: Flags  # [N]
    journal: Ints  # [J, 2], positions of the reversals that were made
    state: Ints  # [3], front and length of the queue, length of the journal


def make_cycle(
    points: np.ndarray, neighbors: np.ndarray, matrix: np.ndarray | None = None, journal: int = 0
) -> Cycle:
    """A cycle without a tour; `journal` is the number of reversals that can be taken back."""
    size = len(neighbors)
    return Cycle(
        np.ascontiguousarray(points, dtype=np.float64),
        np.empty((0, 0)) if matrix is None else np.ascontiguousarray(matrix, dtype=np.float64),
        np.ascontiguousarray(neighbors, dtype=np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.bool_),
        np.zeros((journal, 2), np.int64),
        np.zeros(3, np.int64),
    )


def neighbor_lists(
    points: np.ndarray, matrix: np.ndarray | None, num_neighbors: int = NUM_NEIGHBORS
) -> Ints:
    """Nearest neighbours `[N, K]` by coordinates `[N, 2]`, or by a matrix `[N, N]`."""
    if num_neighbors < 1:
        raise ConfigError(f"expected num_neighbors of at least 1, got {num_neighbors}")
    size = len(points) if matrix is None else len(matrix)
    count = min(num_neighbors, size - 1)
    if matrix is None:
        return nearest_neighbors(points, count)
    apart = np.array(matrix, dtype=np.float64)
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :count].astype(np.int64)


def improve_tours(
    locs: np.ndarray,
    tours: np.ndarray,
    matrix: np.ndarray | None = None,
    max_iterations: int | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
    threads: int = 1,
) -> Ints:
    """Improves tours by 2-opt and Or-opt until no move on the neighbour lists helps.

    The first node of a tour stays first and the result is never longer than the input.

    Args:
        locs: Coordinates.
        tours: Permutations of the nodes. With more tours than instances, tour `s * B + b` belongs
            to instance `b` (the order of `batchify`).
        matrix: Symmetric distances in place of Euclidean ones.
        max_iterations: Most moves applied to one tour (default: no limit).
        num_neighbors: Neighbours of each node that new edges may lead to.
        threads: Threads that share the tours.

    Shapes:
        locs `[B, N, 2]`, tours `[S * B, N]`, matrix `[B, N, N]` → `[S * B, N]`

    Example:
        >>> square = np.array([[[0, 0], [1, 0], [1, 1], [0, 1]]])
        >>> improve_tours(square, np.array([[0, 2, 1, 3]])).tolist()
        [[0, 1, 2, 3]]
    """
    if max_iterations is not None and max_iterations < 0:
        raise ConfigError(f"expected max_iterations of at least 0, got {max_iterations}")
    result = checked_tours(locs, tours)
    budget = UNLIMITED if max_iterations is None else max_iterations
    if result.shape[1] < 4:
        return result  # one cycle, whatever the order
    batch = len(locs)
    lists = [
        neighbor_lists(locs[b], None if matrix is None else matrix[b], num_neighbors)
        for b in range(batch)
    ]

    def run(rows: range) -> None:
        for b in range(batch):
            own = [row for row in rows if row % batch == b]
            if own:
                cycle = make_cycle(locs[b], lists[b], None if matrix is None else matrix[b])
                _improve_rows(cycle, result, np.array(own), budget)

    run_in_chunks(run, len(result), threads)
    return result


def checked_tours(locs: np.ndarray, tours: np.ndarray) -> Ints:
    """A copy of valid tours `[S * B, N]` of finite points `[B, N, 2]`; others are refused."""
    locs, tours = np.asarray(locs), np.asarray(tours)
    if locs.ndim != 3 or locs.shape[2] != 2 or not locs.size:
        raise ConfigError(f"expected locs of shape [B, N, 2], got {list(locs.shape)}")
    batch, size = locs.shape[:2]
    if tours.ndim != 2 or tours.shape[1] != size or len(tours) % batch:
        raise ConfigError(
            f"expected tours of shape [S * B, N] with B={batch}, N={size}, got {list(tours.shape)}"
        )
    if not np.isfinite(locs).all():
        raise InvalidInstanceError("expected finite coordinates, got NaN or infinity")
    broken = (np.sort(tours, axis=1) != np.arange(size)).any(axis=1).nonzero()[0]
    if broken.size:
        raise InvalidSolutionError(
            "every node is visited exactly once", broken.tolist(), len(tours)
        )
    return np.array(tours, dtype=np.int64, order="C")


# --------------------------------------------------------------------------------------------------
# Kernels. A tour is an array of nodes, read as a ring in either direction. All changes are
# reversals, which are their own inverse: a journal of them takes a whole search back.


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
    """Takes over a tour, with nothing in the queue."""
    c.state[:] = 0
    c.queued[:] = False
    for i in range(tour.size):
        c.nodes[i] = tour[i]
        c.position[tour[i]] = i


@compiled
def enqueue(c: Cycle, node: int) -> None:
    """Lets the search look at a node again."""
    if not c.queued[node]:
        size = c.nodes.size
        c.queued[node] = True
        c.queue[(c.state[0] + c.state[1]) % size] = node
        c.state[1] += 1


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
    if c.state[2] < c.journal.shape[0]:
        c.journal[c.state[2], 0] = i
        c.journal[c.state[2], 1] = j
        c.state[2] += 1
    swap_ends(c, i, j, length // 2)


@compiled
def take_back(c: Cycle) -> None:
    """Undoes all reversals in the journal."""
    size = c.nodes.size
    for entry in range(c.state[2] - 1, -1, -1):
        i, j = c.journal[entry, 0], c.journal[entry, 1]
        length = (j - i) % size + 1
        # A reversal of nothing is noted as one of all, which it cannot have been.
        swap_ends(c, i, j, length // 2 if 2 * length <= size else 0)
    c.state[2] = 0


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
        enqueue(c, p0)
        enqueue(c, v)
    return best


@compiled
def _offset(c: Cycle, u: int, x: int, forward: bool) -> int:
    """Steps from u to x in a direction."""
    steps = c.position[x] - c.position[u]
    return (steps if forward else -steps) % c.nodes.size


@compiled
def _wake(c: Cycle, a: int, b: int, x: int, y: int) -> None:
    enqueue(c, a)
    enqueue(c, b)
    enqueue(c, x)
    enqueue(c, y)


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
    """Searches until the queue is empty; what was gained, and the number of moves."""
    total, moves = 0.0, 0
    room = c.journal.shape[0]
    size = c.nodes.size
    while c.state[1] > 0 and moves < budget:
        u = c.queue[c.state[0]]
        c.state[0] = (c.state[0] + 1) % size
        c.state[1] -= 1
        c.queued[u] = False
        while moves < budget and (room == 0 or c.state[2] + 4 <= room):
            gain = improve_node(c, u)
            if gain <= 0.0:
                break
            total += gain
            moves += 1
    # What is left of an interrupted search must not surprise the next one.
    while c.state[1] > 0:
        c.queued[c.queue[c.state[0]]] = False
        c.state[0] = (c.state[0] + 1) % size
        c.state[1] -= 1
    return total, moves


@compiled
def store_tour(c: Cycle, out: Ints, first: int) -> None:
    """Writes the tour to `out`, beginning with a node."""
    size, place = c.nodes.size, c.position[first]
    for i in range(size):
        out[i] = c.nodes[place]
        place = place + 1 if place + 1 < size else 0


@compiled
def _improve_rows(c: Cycle, tours: Ints, rows: Ints, budget: int) -> None:
    """Improves some tours of one instance in place."""
    for row in rows:
        load_tour(c, tours[row])
        for node in tours[row]:
            enqueue(c, node)
        improve_queued(c, budget)
        store_tour(c, tours[row], tours[row, 0])


@compiled
def tour_cost(points: Floats, matrix: Floats, tour: Ints) -> float:
    """Length of a closed tour."""
    total = distance(points, matrix, tour[-1], tour[0])
    for i in range(tour.size - 1):
        total += distance(points, matrix, tour[i], tour[i + 1])
    return total
