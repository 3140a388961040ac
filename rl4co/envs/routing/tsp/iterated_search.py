"""Iterated local search for symmetric tours: kick a small part, repair it, keep it unless worse.

A kick exchanges two short neighbouring segments (a local double bridge). The search that follows
visits only the nodes that the kick touched, so an iteration takes microseconds whatever the
number of nodes; if it worsens the tour, a journal undoes it.
"""

from __future__ import annotations

import time

from collections.abc import Callable

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.routing._node_queue import Floats, Ints, push
from rl4co.envs.routing.tsp.cycle import (
    JOURNAL,
    NUM_NEIGHBORS,
    UNLIMITED,
    Cycle,
    apart,
    descend,
    improve_queued,
    make_cycle,
    neighbor_lists,
    reverse,
    store_tour,
    tour_cost,
    undo,
)
from rl4co.envs.routing.tsp.neighbor_search import checked_tours
from rl4co.kernels import compiled

#: Longest segment of a kick.
MAX_KICK = 50
#: Kicks between two checks of the clock.
KICKS_PER_CHECK = 2_000


def iterate_tour(
    locs: np.ndarray,
    tour: np.ndarray,
    matrix: np.ndarray | None = None,
    *,
    max_kicks: int | None = None,
    max_runtime: float | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
    seed: int = 0,
    on_improvement: Callable[[float], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Ints:
    """A tour improved by iterated local search; never longer than the given one.

    Args:
        locs: Coordinates.
        tour: Permutation of the nodes to begin with.
        matrix: Symmetric distances in place of Euclidean ones.
        max_kicks: Most kicks.
        max_runtime: Seconds after which no more kicks are made; at least one of the two limits is
            needed.
        num_neighbors: Neighbours of each node that new edges may lead to.
        seed: Seed of the kicks.
        on_improvement: Called with the length at intervals in which it has become shorter.
        is_stopped: Called at intervals; the search ends when it returns True.

    Shapes:
        locs `[N, 2]`, tour `[N]`, matrix `[N, N]` → `[N]`
    """
    if max_kicks is None and max_runtime is None:
        raise ConfigError("expected max_kicks or max_runtime, got neither; the search has no end")
    began = time.perf_counter()
    result = checked_tours(np.asarray(locs)[None], np.asarray(tour)[None])[0]
    if len(result) < 4:
        return result
    cycle = make_cycle(locs, neighbor_lists(locs, matrix, num_neighbors), matrix, JOURNAL)
    descend(cycle._replace(journal=cycle.journal[:0]), result, UNLIMITED)  # never undone
    if len(result) < 5:
        return result  # too short for kicks
    length = tour_cost(cycle.points, cycle.matrix, result)
    if on_improvement is not None:
        on_improvement(length)
    rng = np.random.default_rng(seed)
    remaining = UNLIMITED if max_kicks is None else max_kicks
    while remaining > 0 and (max_runtime is None or time.perf_counter() - began < max_runtime):
        if is_stopped():
            break
        count = min(remaining, KICKS_PER_CHECK)
        shorter = _kick_and_repair(cycle, rng.random((count, 3)), length)
        remaining -= count
        if shorter < length and on_improvement is not None:
            on_improvement(shorter)
        length = shorter
    store_tour(cycle, result, int(result[0]))
    return result


@compiled
def _kick_and_repair(c: Cycle, draws: Floats, length: float) -> float:
    """One iteration for each row of numbers in [0, 1); the length of the tour at the end."""
    size = c.nodes.size
    longest = min(MAX_KICK, size // 4)
    for row in range(draws.shape[0]):
        c.reversals[0] = 0
        i = int(draws[row, 0] * size)
        first = 1 + int(draws[row, 1] * longest)
        second = 1 + int(draws[row, 2] * longest)
        added = _kick(c, i, first, second)
        gained, _ = improve_queued(c, UNLIMITED)
        change = added - gained
        if change <= 0.0:
            length += change
        else:
            undo(c)
    return length


@compiled
def _kick(c: Cycle, i: int, first: int, second: int) -> float:
    """Exchanges the `first` nodes after position i and the `second` nodes after these."""
    size = c.nodes.size
    head, middle, end = (i + 1) % size, (i + first + 1) % size, (i + first + second + 1) % size
    a, b = c.nodes[i], c.nodes[head]
    x, y = c.nodes[(i + first) % size], c.nodes[middle]
    z, w = c.nodes[(i + first + second) % size], c.nodes[end]
    reverse(c, head, (end - 1) % size)
    reverse(c, head, (i + second) % size)
    reverse(c, (i + second + 1) % size, (end - 1) % size)
    for node in (a, b, x, y, z, w):
        push(c.queue, node)
    new = apart(c, a, y) + apart(c, z, b) + apart(c, x, w)
    return new - apart(c, a, b) - apart(c, x, y) - apart(c, z, w)
