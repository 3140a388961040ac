"""Tours sampled edge by edge in compiled loops that repeat the rules of :class:`TSPEnv`.

Every node is visited once, starting anywhere; `ANTS` names the repeated methods.
"""

from __future__ import annotations

import numpy as np

from rl4co.envs.routing._node_queue import Flags, Floats, Ints
from rl4co.kernels import compiled, run_in_chunks
from rl4co.kernels.mirror import Mirror

ANTS = Mirror(
    "tsp",
    methods=("advance", "_transition", "_action_mask"),
    fresh={"i": 0, "action_mask": 1},
    fingerprint="b9dd406b3b31288b",
)


def draw_tours(
    points: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    draws: np.ndarray,
    nearest: bool,
    threads: int = 1,
) -> Ints:
    """Tours that follow edges with probabilities proportional to weights.

    Args:
        points: Coordinates.
        targets: Ends of the candidate edges.
        weights: Their weights.
        draws: Uniform numbers in [0, 1); the first one of a tour chooses its first node.
        nearest: If no candidate is left, go to the nearest node instead of a random one.
        threads: Number of threads.

    Shapes:
        points `[B, N, 2]`, targets and weights `[B, N, K]`, draws `[B, A, T]` with T >= N →
        `[B, A, N]`
    """
    batch, ants = draws.shape[:2]
    tours = np.empty((batch, ants, points.shape[1]), dtype=np.int64)
    run_in_chunks(
        lambda rows: _draw_rows(
            points, targets, weights, draws, nearest, tours, rows.start, rows.stop
        ),
        batch * ants,
        threads,
    )
    return tours


@compiled
def _draw_rows(
    points: Floats,
    targets: Ints,
    weights: Floats,
    draws: Floats,
    nearest: bool,
    tours: Ints,
    start: int,
    stop: int,
) -> None:
    ants, size = tours.shape[1], tours.shape[2]
    visited = np.empty(size, np.bool_)
    for row in range(start, stop):
        b, a = row // ants, row % ants
        visited[:] = False
        node = min(int(draws[b, a, 0] * size), size - 1)
        tours[b, a, 0] = node
        visited[node] = True
        for step in range(1, size):
            node = _next_node(
                points[b], targets[b, node], weights[b, node], visited, node,
                draws[b, a, step], nearest, size - step,
            )  # fmt: skip
            tours[b, a, step] = node
            visited[node] = True


@compiled
def _next_node(
    points: Floats,
    targets: Ints,
    weights: Floats,
    visited: Flags,
    node: int,
    draw: float,
    nearest: bool,
    left: int,
) -> int:
    total = 0.0
    for k in range(targets.size):
        if not visited[targets[k]]:
            total += weights[k]
    if total > 0.0:
        threshold, chosen = draw * total, -1
        for k in range(targets.size):
            if not visited[targets[k]] and weights[k] > 0.0:
                chosen = targets[k]
                threshold -= weights[k]
                if threshold < 0.0:
                    break
        return chosen
    if nearest:
        best, chosen = np.inf, -1
        for other in range(visited.size):
            if not visited[other]:
                x = points[other, 0] - points[node, 0]
                y = points[other, 1] - points[node, 1]
                away = x * x + y * y
                if away < best:
                    best, chosen = away, other
        return chosen
    skip = min(int(draw * left), left - 1)
    for other in range(visited.size):
        if not visited[other]:
            if skip == 0:
                return other
            skip -= 1
    return -1
