"""Local search of symmetric tours: 2-opt and Or-opt on neighbour lists, for any number of nodes.

The moves are in :mod:`rl4co.envs.routing.tsp.cycle`. For asymmetric matrices, and for searches that
try all moves, see :mod:`rl4co.envs.routing.tsp.local_search`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, InvalidInstanceError, InvalidSolutionError
from rl4co.envs.routing._node_queue import Ints
from rl4co.envs.routing.tsp.cycle import (
    NUM_NEIGHBORS,
    UNLIMITED,
    Cycle,
    descend,
    make_cycle,
    neighbor_lists,
)
from rl4co.kernels import compiled, run_in_chunks


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
    check_at_least(0, max_iterations=max_iterations)
    result = checked_tours(locs, tours)
    budget = UNLIMITED if max_iterations is None else max_iterations
    if result.shape[1] < 4:
        return result  # all orders are the same cycle
    batch = len(locs)
    lists = [
        neighbor_lists(locs[b], None if matrix is None else matrix[b], num_neighbors)
        for b in range(batch)
    ]

    def run(rows: range) -> None:
        for b, tours_of_b in group_by_instance(rows, batch):
            cycle = make_cycle(locs[b], lists[b], None if matrix is None else matrix[b])
            _improve_rows(cycle, result, tours_of_b, budget)

    run_in_chunks(run, len(result), threads)
    return result


def checked_tours(locs: np.ndarray, tours: np.ndarray) -> Ints:
    """A copy of valid tours `[S * B, N]` of finite points `[B, N, 2]`; raises if they are not."""
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
    check_permutations(tours)
    return np.array(tours, dtype=np.int64, order="C")


def check_permutations(tours: np.ndarray) -> None:
    """Raises unless each row visits every node exactly once."""
    broken = (np.sort(tours, axis=1) != np.arange(tours.shape[1])).any(axis=1).nonzero()[0]
    if broken.size:
        raise InvalidSolutionError(
            "every node is visited exactly once", broken.tolist(), len(tours)
        )


def group_by_instance(rows: range, batch: int) -> Iterator[tuple[int, Ints]]:
    """Instances with the rows of their tours: row `s * batch + b` belongs to instance `b`."""
    for b in range(batch):
        selected = [row for row in rows if row % batch == b]
        if selected:
            yield b, np.array(selected, dtype=np.int64)


@compiled
def _improve_rows(c: Cycle, tours: Ints, rows: Ints, budget: int) -> None:
    """Improves some tours of one instance in place."""
    for row in rows:
        descend(c, tours[row], budget)
