"""Local search for maximum coverage: exchange one set at a time, the best exchange first.

How often each item is covered tells what a set alone contributes and what another would add. The
loops are compiled when they are first called.
"""

from __future__ import annotations

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.graph._swaps import MIN_GAIN, Floats, Ints, search_rows
from rl4co.kernels import compiled


def swap_sets(
    membership: np.ndarray,
    weights: np.ndarray,
    chosen: np.ndarray,
    counts: np.ndarray,
    max_iterations: int = 1000,
    threads: int = 1,
) -> np.ndarray:
    """Exchanges sets until no exchange of a single one helps.

    The result is never worse than the input. The new set takes the place of the old one in the row.

    Args:
        membership: Items of each set, counted from 1; 0 is padding.
        weights: Weights of the items.
        chosen: Chosen sets; with more rows than instances, row `s * B + b` belongs to instance b
            (the order of `batchify`).
        counts: Number of sets in each instance; entries of rows behind them do not count.
        max_iterations: Most exchanges applied to one solution.
        threads: Threads that share the batch.

    Returns:
        Improved solutions.

    Shapes:
        membership `[B, N, K]`, weights `[B, M]`, chosen `[S * B, T]`, counts `[B]` → `[S * B, T]`

    Example:
        >>> sets = np.array([[[1, 2], [2, 0], [3, 0]]])
        >>> swap_sets(sets, np.ones((1, 3)), np.array([[0, 1]]), np.array([2])).tolist()
        [[0, 2]]
    """
    items = np.ascontiguousarray(membership, dtype=np.int64)
    values = np.ascontiguousarray(weights, dtype=np.float64)
    if items.ndim != 3 or values.ndim != 2 or len(items) != len(values):
        raise ConfigError(
            "expected membership of shape [B, N, K] and weights of shape [B, M], got "
            f"{list(items.shape)} and {list(values.shape)}"
        )

    def search(rows: Ints, of_rows: Ints, start: int, stop: int) -> None:
        _search_rows(items, values, rows, of_rows, start, stop, max_iterations)

    return search_rows(search, chosen, counts, items.shape[1], "set", max_iterations, threads)


@compiled
def _search_rows(
    items: Ints, weights: Floats, rows: Ints, counts: Ints, start: int, stop: int, budget: int
) -> None:
    """Improves the selections `start`..`stop` in place."""
    times = np.empty(weights.shape[1] + 1, np.int64)  # how often each item is covered
    is_chosen = np.empty(items.shape[1], np.bool_)
    for row in range(start, stop):
        sets, values = items[row % items.shape[0]], weights[row % items.shape[0]]
        chosen = rows[row, : counts[row]]
        times[:], is_chosen[:] = 0, False
        total = 0.0
        for index in chosen:
            is_chosen[index] = True
            total += _add(sets[index], values, times)
        for _ in range(budget):
            best, place, other = MIN_GAIN * total, -1, -1
            for candidate in range(chosen.size):
                loss = _remove(sets[chosen[candidate]], values, times)
                for index in range(sets.shape[0]):
                    if not is_chosen[index]:
                        gain = _gain(sets[index], values, times) - loss
                        if gain > best:
                            best, place, other = gain, candidate, index
                _add(sets[chosen[candidate]], values, times)
            if place < 0:
                break
            _remove(sets[chosen[place]], values, times)
            _add(sets[other], values, times)
            is_chosen[chosen[place]], is_chosen[other] = False, True
            chosen[place] = other
            total += best


@compiled
def _gain(items: Ints, values: Floats, times: Ints) -> float:
    """Weight of the items that nothing covers."""
    gain = 0.0
    for item in items:
        if item > 0 and times[item] == 0:
            gain += values[item - 1]
    return gain


@compiled
def _add(items: Ints, values: Floats, times: Ints) -> float:
    """Covers the items of a set once more; returns the weight that this adds."""
    gain = _gain(items, values, times)
    for item in items:
        times[item] += 1
    return gain


@compiled
def _remove(items: Ints, values: Floats, times: Ints) -> float:
    """Covers the items of a set once less; returns the weight that this takes away."""
    for item in items:
        times[item] -= 1
    return _gain(items, values, times)
