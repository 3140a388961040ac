"""Local search for facility location: move one facility at a time, the best move first.

The swap that gains most is found with the nearest and second nearest facility of each customer
(Whitaker, 1983): one pass over the customers for each location tells the best facility to close in
exchange for it. The loops are compiled when they are first called.
"""

from __future__ import annotations

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.graph._swaps import MIN_GAIN, Floats, Ints, search_rows
from rl4co.kernels import compiled


def swap_facilities(
    costs: np.ndarray,
    chosen: np.ndarray,
    counts: np.ndarray,
    max_iterations: int = 1000,
    threads: int = 1,
) -> np.ndarray:
    """Moves facilities until no move of a single one helps.

    The result is never worse than the input. A facility that moves keeps its place in the row.

    Args:
        costs: Cost from facility (row) to customer (column).
        chosen: Locations with facilities; with more rows than matrices, row `s * B + b` belongs to
            matrix b (the order of `batchify`).
        counts: Number of facilities in each instance; entries of rows behind them do not count.
        max_iterations: Most moves applied to one solution.
        threads: Threads that share the batch.

    Returns:
        Improved solutions.

    Shapes:
        costs `[B, N, N]`, chosen `[S * B, T]`, counts `[B]` → `[S * B, T]`

    Example:
        >>> line = np.array([0.0, 1.0, 2.0, 9.0])
        >>> costs = np.abs(line[:, None] - line)[None]
        >>> swap_facilities(costs, np.array([[0, 1]]), np.array([2])).tolist()
        [[3, 1]]
    """
    costs = np.ascontiguousarray(costs, dtype=np.float64)
    if costs.ndim != 3 or costs.shape[1] != costs.shape[2] or not np.isfinite(costs).all():
        raise ConfigError(
            f"expected finite costs of shape [B, N, N], got {list(costs.shape)}; give forbidden "
            "pairs a large finite cost"
        )

    def search(rows: Ints, of_rows: Ints, start: int, stop: int) -> None:
        _search_rows(costs, rows, of_rows, start, stop, max_iterations)

    return search_rows(search, chosen, counts, costs.shape[1], "location", max_iterations, threads)


@compiled
def _search_rows(
    costs: Floats, rows: Ints, counts: Ints, start: int, stop: int, budget: int
) -> None:
    """Improves the selections `start`..`stop` in place."""
    size = costs.shape[1]
    nearest, first, second = np.empty(size, np.int64), np.empty(size), np.empty(size)
    losses, is_open = np.empty(size), np.empty(size, np.bool_)
    for row in range(start, stop):
        matrix, chosen = costs[row % costs.shape[0]], rows[row, : counts[row]]
        is_open[:] = False
        for facility in chosen:
            is_open[facility] = True
        for _ in range(budget):
            total = _assign(matrix, chosen, nearest, first, second)
            best, place, location = MIN_GAIN * abs(total), -1, -1
            for candidate in range(size):
                if not is_open[candidate]:
                    gain, worst = _exchange(
                        matrix[candidate], nearest, first, second, losses[: chosen.size]
                    )
                    if gain > best:
                        best, place, location = gain, worst, candidate
            if place < 0:
                break
            is_open[chosen[place]] = False
            is_open[location] = True
            chosen[place] = location


@compiled
def _assign(matrix: Floats, chosen: Ints, nearest: Ints, first: Floats, second: Floats) -> float:
    """Place of each customer's nearest facility, its cost and the next one's; the total cost."""
    total = 0.0
    for customer in range(matrix.shape[1]):
        first[customer], second[customer], nearest[customer] = np.inf, np.inf, -1
        for place in range(chosen.size):
            cost = matrix[chosen[place], customer]
            if cost < first[customer]:
                second[customer] = first[customer]
                first[customer], nearest[customer] = cost, place
            elif cost < second[customer]:
                second[customer] = cost
        total += first[customer]
    return total


@compiled
def _exchange(
    costs: Floats, nearest: Ints, first: Floats, second: Floats, losses: Floats
) -> tuple[float, int]:
    """Gain of a new facility with these costs, and the place of the one to close for it."""
    gain = 0.0
    losses[:] = 0.0
    for customer in range(costs.size):
        cost = costs[customer]
        if cost < first[customer]:
            gain += first[customer] - cost
        else:  # if its facility closes, it goes to the new one or to its second nearest
            losses[nearest[customer]] += min(cost, second[customer]) - first[customer]
    place = 0
    for other in range(1, losses.size):
        if losses[other] < losses[place]:
            place = other
    return gain - losses[place], place
