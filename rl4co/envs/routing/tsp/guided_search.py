"""Local search whose escapes from local optima are guided by a heatmap (Ye et al., 2023).

Rounds alternate between a perturbation, a few moves that shorten the tour as the heatmap measures
it, and a search that shortens it as distances measure it; the best tour counts. Results are
deterministic. There are two implementations: 2-opt and Or-opt on neighbour lists (fast), and that
of the original code, which applies the best 2-opt move among all pairs (`exhaustive`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError
from rl4co.envs.routing._node_queue import Floats, Ints, push
from rl4co.envs.routing.tsp.cycle import (
    NUM_NEIGHBORS,
    UNLIMITED,
    Cycle,
    apart,
    descend,
    exchange,
    improve_queued,
    make_cycle,
    neighbor_lists,
    step,
    store_tour,
)
from rl4co.envs.routing.tsp.neighbor_search import checked_tours, group_by_instance
from rl4co.kernels import compiled, run_in_chunks

#: Weight of the edges that a heatmap leaves out, beside 1 for the best edge of a node.
PRUNED_WEIGHT = 1e-5
#: Weight on top of every edge's, before the best of a node is found (original code).
EPSILON = 1e-10
#: Best improvement stops at gains below this, in the units of a unit square (original code).
MIN_DELTA = 1e-6


def guide_from_heatmap(heatmap: np.ndarray) -> np.ndarray:
    """Lengths as a heatmap measures them: $1 / (h_{ij} / \\max_j h_{ij} + 10^{-5})$.

    Shapes:
        heatmap `[B, N, N]`, zero where pruned → `[B, N, N]`, float32
    """
    heatmap = np.asarray(heatmap, dtype=np.float32)
    if heatmap.ndim != 3 or heatmap.shape[1] != heatmap.shape[2]:
        raise ConfigError(f"expected a heatmap of shape [B, N, N], got {list(heatmap.shape)}")
    if not np.isfinite(heatmap).all() or (heatmap < 0).any():
        raise ConfigError("expected finite weights of at least 0 in the heatmap, got others")
    weights = heatmap + np.float32(EPSILON)
    highest = weights.max(-1, keepdims=True)  # [B, N, 1]
    return np.float32(1.0) / (weights / highest + np.float32(PRUNED_WEIGHT))


def check_guide(guide: np.ndarray, batch: int, size: int, rounds: int, perturbations: int) -> None:
    """Raises for a guide that is not `[B, N, N]`, and for numbers below zero."""
    if guide.shape != (batch, size, size):
        raise ConfigError(
            f"expected a guide of shape {[batch, size, size]}, got {list(guide.shape)}"
        )
    check_at_least(0, rounds=rounds, perturbations=perturbations)


def check_unguided(options: Mapping[str, Any]) -> None:
    """Raises for options that mean nothing without a heatmap."""
    for name in ("rounds", "perturbations"):
        if name in options:
            raise ConfigError(
                f"expected a heatmap to guide perturbations, got {name}={options[name]!r} and none"
            )


def guided_search(
    locs: np.ndarray,
    tours: np.ndarray,
    guide: np.ndarray,
    rounds: int = 10,
    perturbations: int = 20,
    max_iterations: int | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
    threads: int = 1,
    exhaustive: bool = False,
) -> Ints:
    """Tours improved by guided local search; never longer than those without guidance.

    Args:
        locs: Coordinates.
        tours: Tours; tour `s * B + b` belongs to instance `b`.
        guide: Lengths as the heatmap measures them, see :func:`guide_from_heatmap`.
        rounds: Perturbations, each followed by a search.
        perturbations: Most moves of a perturbation.
        max_iterations: Most moves of each search (default: no limit).
        num_neighbors: Neighbours of each node that new edges may lead to.
        threads: Threads that share the tours.
        exhaustive: Take the best 2-opt move among all pairs each time, in float32, as the original
            code. Takes time of order N² for every move.

    Shapes:
        locs `[B, N, 2]`, tours `[S * B, N]`, guide `[B, N, N]` → `[S * B, N]`
    """
    result = checked_tours(locs, tours)
    batch, size = locs.shape[:2]
    check_guide(guide, batch, size, rounds, perturbations)
    if size < 5:
        return result
    budget = UNLIMITED if max_iterations is None else max_iterations

    def run(rows: range) -> None:
        limits = (rounds, perturbations, budget)
        for b, tours_of_b in group_by_instance(rows, batch):
            if exhaustive:
                lengths = distance_matrix(locs[b])
                _search_exhaustively(lengths, guide[b], result, tours_of_b, *limits)
                continue
            near = neighbor_lists(locs[b], None, num_neighbors)
            by_guide = neighbor_lists(locs[b], guide[b], num_neighbors)
            cycle = make_cycle(locs[b], near)
            _search_rows(cycle, guide[b], by_guide, result, tours_of_b, *limits)

    run_in_chunks(run, len(result), threads)
    return result


def distance_matrix(locs: np.ndarray) -> np.ndarray:
    """Distances `[N, N]` in float32; the diagonal is not used."""
    locs = np.asarray(locs, dtype=np.float32)
    return np.sqrt(((locs[:, None] - locs[None]) ** 2).sum(-1, dtype=np.float32))


# --------------------------------------------------------------------------------------------------
# Kernels


@compiled
def _search_rows(
    c: Cycle,
    guide: Floats,
    by_guide: Ints,
    tours: Ints,
    rows: Ints,
    rounds: int,
    perturbations: int,
    budget: int,
) -> None:
    for row in rows:
        descend(c, tours[row], budget)
        balance = 0.0  # length beyond that of the best tour
        for _ in range(rounds):
            moved = 0
            while moved < perturbations:
                has_moved, added = _perturb(c, guide, by_guide)
                if not has_moved:
                    break
                balance += added
                moved += 1
            if moved == 0:
                break  # all further rounds would do the same
            gained, _ = improve_queued(c, budget)
            balance -= gained
            if balance < 0.0:
                balance = 0.0
                store_tour(c, tours[row], tours[row, 0])


@compiled
def _perturb(c: Cycle, guide: Floats, by_guide: Ints) -> tuple[bool, float]:
    """Applies the best 2-opt move by the guide; whether there is one, and the added length."""
    best = MIN_DELTA
    u0 = v0 = x0 = y0 = 0
    for u in range(c.nodes.size):
        for forward in (True, False):
            v = step(c, u, forward)
            old = guide[u, v]
            for x in by_guide[u]:
                near = guide[u, x]
                if near >= old:
                    break
                y = step(c, x, forward)
                gain = old + guide[x, y] - near - guide[v, y]
                if gain > best:
                    best, u0, v0, x0, y0 = gain, u, v, x, y
    if v0 == x0:
        return False, 0.0
    added = apart(c, u0, x0) + apart(c, v0, y0) - apart(c, u0, v0) - apart(c, x0, y0)
    exchange(c, u0, v0, x0, y0)
    for node in (u0, v0, x0, y0):
        push(c.queue, node)
    return True, added


@compiled
def _best_moves(d: Floats, tour: Ints, budget: int) -> int:
    """Best 2-opt moves in place, until none helps; the first position stays."""
    size, moves = tour.size, 0
    while moves < budget:
        best, first, last = -MIN_DELTA, 0, 0
        for i in range(1, size - 1):
            a, b = tour[i - 1], tour[i]
            for j in range(i + 1, size):
                x = tour[j]
                y = tour[j + 1] if j + 1 < size else tour[0]
                change = d[a, x] + d[b, y] - d[a, b] - d[x, y]
                if change < best:
                    best, first, last = change, i, j
        if last == 0:
            break
        tour[first : last + 1] = tour[first : last + 1][::-1].copy()
        moves += 1
    return moves


@compiled
def _search_exhaustively(
    d: Floats,
    guide: Floats,
    tours: Ints,
    rows: Ints,
    rounds: int,
    perturbations: int,
    budget: int,
) -> None:
    for row in rows:
        tour = tours[row].copy()
        _best_moves(d, tour, budget)
        best = _length(d, tour)
        tours[row] = tour
        for _ in range(rounds):
            _best_moves(guide, tour, perturbations)
            _best_moves(d, tour, budget)
            length = _length(d, tour)
            if length < best:
                best = length
                tours[row] = tour


@compiled
def _length(d: Floats, tour: Ints) -> float:
    total = d[tour[-1], tour[0]]
    for i in range(tour.size - 1):
        total += d[tour[i], tour[i + 1]]
    return total
