"""Local search for closed tours: 2-opt, Or-opt and both together, on batches of distance matrices.

The search runs in numba kernels. Importing this module does not import numba: a kernel is compiled
(or loaded from numba's cache on disk) when it is first called. Matrices may be asymmetric.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, InvalidInstanceError, UnsupportedError
from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.tsp.guided_search import check_unguided, guide_from_heatmap, guided_search
from rl4co.envs.routing.tsp.neighbor_search import check_permutations, improve_tours
from rl4co.kernels import compiled, run_in_chunks

# A move must gain this share of what it takes out. The threshold is relative, so it suits unit
# squares and metres alike, and far above rounding, so a sequence of moves cannot cycle.
MIN_GAIN = 1e-6


def search_tours(
    locs: np.ndarray | None,
    matrix: np.ndarray | None,
    tours: np.ndarray,
    num_neighbors: int | Literal["auto"] | None = "auto",
    heatmap: np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:
    """Improves tours by the search that suits the instance; `env.local_search` calls it.

    Coordinates alone are searched on neighbour lists
    (:func:`~rl4co.envs.routing.tsp.neighbor_search.improve_tours`), with a heatmap by guided search
    (:func:`~rl4co.envs.routing.tsp.guided_search.guided_search`). Matrices, which may be
    asymmetric, are searched by :func:`improve_tour`, and so are coordinates without a number of
    neighbours.

    Args:
        locs: Coordinates.
        matrix: Distances in place of Euclidean ones.
        tours: Tours; tour `s * B + b` belongs to instance `b`.
        num_neighbors: Neighbours of each node that new edges may lead to; None: all moves; "auto":
            ten for coordinates, all moves for matrices.
        heatmap: Weights of edges that guide perturbations, zero where pruned.
        options: Further arguments of the function that is called: `max_iterations`, `threads`, ...

    Shapes:
        locs `[B, N, 2]`, matrix `[B, N, N]`, tours `[S * B, N]`, heatmap `[B, N, N]` → `[S * B, N]`
    """
    if heatmap is None:
        check_unguided(options)
    if matrix is not None or locs is None:
        if heatmap is not None:
            raise UnsupportedError(
                "expected coordinates for a search that a heatmap guides, got a matrix of distances"
            )
        assert matrix is not None  # one of the two is there
        count = None if num_neighbors == "auto" else num_neighbors
        return improve_tour(matrix, tours, num_neighbors=count, **options)
    if num_neighbors is None and heatmap is None:
        matrix = np.linalg.norm(locs[:, :, None] - locs[:, None], axis=-1)
        return improve_tour(matrix, tours, **options)
    if num_neighbors is not None and num_neighbors != "auto":
        options["num_neighbors"] = num_neighbors
    if heatmap is None:
        return improve_tours(locs, tours, **options)
    return guided_search(locs, tours, guide_from_heatmap(heatmap), **options)


def improve_tour(
    distances: np.ndarray,
    tours: np.ndarray,
    max_iterations: int = 1000,
    num_neighbors: int | None = None,
    threads: int = 1,
    moves: Collection[Literal["two_opt", "or_opt"]] = ("two_opt", "or_opt"),
) -> np.ndarray:
    """Improves tours by alternating 2-opt and Or-opt until neither finds a move.

    2-opt reverses segments; Or-opt moves segments of one to three nodes elsewhere, possibly
    reversed. First improvement: a move is applied as soon as it is found. The first node of a tour
    stays first and the result is never longer than the input.

    Args:
        distances: Distance from row to column. The diagonal is not read.
        tours: Permutations of the nodes. With more tours than matrices, tour `s * B + b` belongs to
            matrix `b` (the order of `batchify`).
        max_iterations: Most moves applied to one tour.
        num_neighbors: Look only at moves that connect a node with one of its that many nearest
            neighbours; all moves if None. Pays off for several hundred nodes and more.
        threads: Threads that share the batch.
        moves: Kinds of moves.

    Returns:
        Improved tours.

    Shapes:
        distances `[B, N, N]`, tours `[S * B, N]` → `[S * B, N]`

    Example:
        >>> square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
        >>> distances = np.linalg.norm(square[:, None] - square[None], axis=-1)
        >>> improve_tour(distances[None], np.array([[0, 2, 1, 3]])).tolist()
        [[0, 1, 2, 3]]
    """
    distances, tours = np.asarray(distances), np.asarray(tours)
    if distances.ndim != 3 or distances.shape[1] != distances.shape[2] or not distances.size:
        raise ConfigError(f"expected distances of shape [B, N, N], got {list(distances.shape)}")
    size = distances.shape[-1]
    if tours.ndim != 2 or tours.shape[1] != size or tours.shape[0] % distances.shape[0]:
        raise ConfigError(
            f"expected tours of shape [S * B, N] with B={distances.shape[0]}, N={size}, "
            f"got {list(tours.shape)}"
        )
    check_at_least(1, num_neighbors=num_neighbors)
    check_at_least(0, max_iterations=max_iterations)
    distances = as_finite_distances(distances)
    check_permutations(tours)

    if num_neighbors is None or num_neighbors >= size - 1:
        neighbors = np.empty((len(distances), size, 0), dtype=np.int64)
    else:
        far_diagonal = distances + np.diag(np.full(size, np.inf, dtype=distances.dtype))
        nearest = np.argpartition(far_diagonal, num_neighbors, axis=-1)[..., :num_neighbors]
        neighbors = np.ascontiguousarray(nearest, dtype=np.int64)  # [B, N, num_neighbors]

    result = np.array(tours, dtype=np.int64, order="C")
    run_in_chunks(
        lambda rows: _search_rows(
            distances,
            neighbors,
            result,
            rows.start,
            rows.stop,
            "two_opt" in moves,
            "or_opt" in moves,
            max_iterations,
        ),
        len(result),
        threads,
    )
    return result


def as_finite_distances(distances: np.ndarray) -> np.ndarray:
    """Contiguous float matrices `[B, N, N]`; raises if an entry off the diagonal is not finite."""
    if distances.dtype not in (np.float32, np.float64):
        distances = distances.astype(np.float64)
    finite = np.isfinite(distances) | np.eye(distances.shape[-1], dtype=bool)
    broken = (~finite).any(axis=(1, 2)).nonzero()[0]
    if broken.size:
        raise InvalidInstanceError(
            f"expected finite distances, got NaN or infinity in instances {broken.tolist()[:8]}; "
            "give forbidden arcs a large finite length"
        )
    return np.ascontiguousarray(distances)


# --------------------------------------------------------------------------------------------------
# Kernels. Every formula holds for symmetric and asymmetric matrices: the cost of a reversal comes
# from a prefix sum that is zero in the symmetric case.


class Tour(NamedTuple):
    """One tour with data for its moves; the arrays change in place."""

    nodes: Ints  # [N + 1], the last entry repeats the first
    position: Ints  # [N], the inverse of nodes[:-1]
    extra: Floats  # [N + 1], walking i..j backwards costs extra[j] - extra[i] more than forwards


@compiled
def _search_rows(
    distances: Floats,
    neighbors: Ints,
    tours: Ints,
    start: int,
    stop: int,
    reverse: bool,
    relocate: bool,
    budget: int,
) -> None:
    """Improves the tours `start`..`stop` in place, keeping the first node of each first."""
    size = tours.shape[1]
    tour = Tour(np.empty(size + 1, np.int64), np.empty(size, np.int64), np.zeros(size + 1))
    for row in range(start, stop):
        instance = row % distances.shape[0]
        # Sums of float32 edges lose more than the smallest gain; one copy is cheap.
        d = distances[instance].astype(np.float64)
        symmetric = _is_symmetric(d)
        tour.extra[:] = 0.0
        tour.nodes[:size], tour.nodes[size] = tours[row], tours[row, 0]
        length = path_length(d, tour.nodes)
        _index(d, tour, symmetric)
        remaining = budget
        while remaining > 0:
            used = 0
            if reverse:
                used += _two_opt(d, neighbors[instance], tour, symmetric, remaining)
            if relocate:
                used += _or_opt(d, neighbors[instance], tour, symmetric, remaining - used)
            if used == 0:
                break
            remaining -= used
        # Rounding of huge entries (forbidden arcs) can fake a gain; tours never get longer.
        if path_length(d, tour.nodes) < length:
            tours[row] = np.roll(tour.nodes[:size], -tour.position[tours[row, 0]])


@compiled
def _is_symmetric(d: Floats) -> bool:
    for i in range(d.shape[0]):
        for j in range(i):
            if d[i, j] != d[j, i]:
                return False
    return True


@compiled
def path_length(d: Floats, nodes: Ints) -> float:
    """Length of the path through nodes in this order."""
    total = 0.0
    for i in range(nodes.size - 1):
        total += d[nodes[i], nodes[i + 1]]
    return total


@compiled
def _index(d: Floats, tour: Tour, symmetric: bool) -> None:
    """Recomputes `position` and `extra` after the nodes have changed."""
    for i in range(tour.position.size):
        u, v = tour.nodes[i], tour.nodes[i + 1]
        tour.position[u] = i
        if not symmetric:
            tour.extra[i + 1] = tour.extra[i] + d[v, u] - d[u, v]


@compiled
def _reverse(nodes: Ints, i: int, j: int) -> None:
    while i < j:
        nodes[i], nodes[j] = nodes[j], nodes[i]
        i += 1
        j -= 1


@compiled
def _reversal(d: Floats, tour: Tour, symmetric: bool, i: int, j: int) -> int:
    """Reversal that helps: 1 of the positions i..j (0 < i < j), 2 of all others, 0: none."""
    nodes = tour.nodes
    a, b, c, e = nodes[i - 1], nodes[i], nodes[j], nodes[j + 1]
    removed, extra = d[a, b] + d[c, e], tour.extra[j] - tour.extra[i]
    if removed - d[a, c] - d[b, e] - extra > MIN_GAIN * (abs(removed) + abs(extra)):
        return 1
    if symmetric:  # reversing all others gives the same cycle in the other direction
        return 0
    extra = tour.extra[-1] - (tour.extra[j + 1] - tour.extra[i - 1])
    if removed - d[c, a] - d[e, b] - extra > MIN_GAIN * (abs(removed) + abs(extra)):
        return 2
    return 0


@compiled
def _apply_reversal(d: Floats, tour: Tour, symmetric: bool, i: int, j: int, kind: int) -> None:
    _reverse(tour.nodes, i, j)
    if kind == 2:
        _reverse(tour.nodes, 1, tour.position.size - 1)
    _index(d, tour, symmetric)


@compiled
def _two_opt(d: Floats, neighbors: Ints, tour: Tour, symmetric: bool, budget: int) -> int:
    """Tries every reversal once, applies those that help, and returns their number."""
    position = tour.position
    size, used = position.size, 0
    if neighbors.shape[1] == 0:
        for i in range(1, size - 1):
            for j in range(i + 1, size):
                kind = _reversal(d, tour, symmetric, i, j)
                if kind:
                    _apply_reversal(d, tour, symmetric, i, j, kind)
                    used += 1
                    if used == budget:
                        return used
        return used
    for u in range(size):
        for v in neighbors[u]:
            # The two reversals that make u and v adjacent: their successors, or their
            # predecessors, become adjacent as well.
            for shift in range(2):
                i = min(position[u], position[v]) + 1 - shift
                j = max(position[u], position[v]) - shift
                if i == 0:  # the first position is fixed: reverse the other side of the cycle
                    i, j = j + 1, size - 1
                kind = _reversal(d, tour, symmetric, i, j) if 0 < i < j else 0
                if kind:
                    _apply_reversal(d, tour, symmetric, i, j, kind)
                    used += 1
                    if used == budget:
                        return used
    return used


@compiled
def _insertion(
    d: Floats, nodes: Ints, head: int, tail: int, extra: float, gap: int
) -> tuple[float, bool]:
    """Cost of the segment head..tail between positions gap and gap + 1, and whether reversed."""
    left, right = nodes[gap], nodes[gap + 1]
    forward = d[left, head] + d[tail, right]
    backward = d[left, tail] + d[head, right] + extra
    return min(forward, backward) - d[left, right], backward < forward


@compiled
def _best_gap(d: Floats, neighbors: Ints, tour: Tour, i: int, length: int) -> tuple[int, bool]:
    """Best new place of the positions i..i+length-1 (i > 0), or -1, and whether to reverse them."""
    nodes, position = tour.nodes, tour.position
    before, after = nodes[i - 1], nodes[i + length]
    head, tail = nodes[i], nodes[i + length - 1]
    extra = tour.extra[i + length - 1] - tour.extra[i]
    removed = d[before, head] + d[tail, after]
    best = removed - d[before, after] - MIN_GAIN * (abs(removed) + abs(extra))
    place, flip = -1, False
    if neighbors.shape[1] == 0:
        for gap in range(position.size):
            if gap < i - 1 or gap >= i + length:
                cost, flipped = _insertion(d, nodes, head, tail, extra, gap)
                if cost < best:
                    best, place, flip = cost, gap, flipped
        return place, flip
    for end in (head, tail):
        for near in neighbors[end]:
            for gap in (position[near], (position[near] - 1) % position.size):
                if gap < i - 1 or gap >= i + length:
                    cost, flipped = _insertion(d, nodes, head, tail, extra, gap)
                    if cost < best:
                        best, place, flip = cost, gap, flipped
    return place, flip


@compiled
def _or_opt(d: Floats, neighbors: Ints, tour: Tour, symmetric: bool, budget: int) -> int:
    """Moves each segment of up to three nodes to its best place; returns the number of moves."""
    nodes, size, used = tour.nodes, tour.position.size, 0
    for length in range(1, min(3, size - 2) + 1):
        for node in range(size):
            if used == budget:
                return used
            i = tour.position[node]
            if i == 0 or i + length > size:  # crosses the end of the array: rotate it away
                nodes[:size] = np.roll(nodes[:size], 1 - i)
                nodes[size] = nodes[0]
                _index(d, tour, symmetric)
                i = 1
            gap, flip = _best_gap(d, neighbors, tour, i, length)
            if gap < 0:
                continue
            if flip:
                _reverse(nodes, i, i + length - 1)
            # Moving a segment is swapping two neighbouring blocks: three reversals.
            first, middle, last = (gap + 1, i, i + length) if gap < i else (i, i + length, gap + 1)
            _reverse(nodes, first, middle - 1)
            _reverse(nodes, middle, last - 1)
            _reverse(nodes, first, last - 1)
            _index(d, tour, symmetric)
            used += 1
    return used
