"""Iterated local search for capacitated routes: ruin a small part, recreate it, keep improvements.

An iteration takes out strings of customers around a random one (Christiaens and Vanden Berghe,
2020), reinserts each at its best place beside its neighbours, and searches from there. It touches a
few routes only, so its time does not depend on the number of customers. Worse solutions are
accepted by simulated annealing, with a temperature that falls to almost nothing; all other changes
are undone.
"""

from __future__ import annotations

import math
import time

from collections.abc import Callable

import numpy as np

from rl4co.core.errors import ConfigError
from rl4co.envs.routing._node_queue import Floats, Ints, clear
from rl4co.envs.routing.cvrp.fleet import (
    NUM_NEIGHBORS,
    Fleet,
    between,
    customer_lists,
    enqueue,
    enqueue_all,
    fleet_cost,
    insert,
    link,
    make_fleet,
    refresh,
    route_length,
    unlink,
    visits_of,
)
from rl4co.envs.routing.cvrp.neighbor_search import improve_part, improve_touched
from rl4co.envs.routing.tsp.cycle import UNLIMITED
from rl4co.kernels import compiled

#: Most customers that an iteration takes out.
MAX_RUIN = 20
#: Longest string taken out of one route.
MAX_STRING = 8
#: Iterations between two checks of the clock.
RUINS_PER_CHECK = 200
#: Moves of the first search, and routes that SWAP* visits, between two checks of the clock.
MOVES_PER_CHECK = 20
#: Solutions longer by this share of the removed length are not searched any further.
MAX_WORSENING = 0.05
#: First and last temperature, in mean lengths of a leg.
HOT, COLD = 1.0, 0.005
#: Iterations per customer from which the first temperature is that high; below, it is lower in
#: proportion, since large instances have no time to recover from worse solutions.
ITERATIONS_PER_CUSTOMER = 100


def iterate_routes(
    locs: np.ndarray,
    demand: np.ndarray,
    limit: float,
    visits: np.ndarray,
    matrix: np.ndarray | None = None,
    *,
    max_ruins: int | None = None,
    max_runtime: float | None = None,
    num_neighbors: int = NUM_NEIGHBORS,
    seed: int = 0,
    on_improvement: Callable[[float], None] | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Ints:
    """A solution improved by iterated local search; never longer than the given one.

    Args:
        locs: Coordinates; node 0 is the depot.
        demand: Demand of the nodes, 0 at the depot.
        limit: Capacity of a vehicle.
        visits: A valid solution: customers with 0 between routes.
        matrix: Symmetric distances in place of Euclidean ones.
        max_ruins: Most iterations.
        max_runtime: Seconds after which no iteration starts; at least one of the two limits is
            needed.
        num_neighbors: Neighbours of each customer that new edges may lead to.
        seed: Seed of the ruins.
        on_improvement: Called with the length at intervals in which it has become shorter.
        is_stopped: Called at intervals; the search ends when it returns True.

    Shapes:
        locs `[N, 2]`, demand `[N]`, visits `[T]`, matrix `[N, N]` → `[T']`
    """
    if max_ruins is None and max_runtime is None:
        raise ConfigError("expected max_ruins or max_runtime, got neither; the search has no end")
    began = time.perf_counter()

    def is_over() -> bool:
        late = max_runtime is not None and time.perf_counter() - began >= max_runtime
        return late or is_stopped()

    closed = np.concatenate([[0], visits, [0]])
    lists = customer_lists(locs, num_neighbors, matrix)
    fleet = make_fleet(locs, demand, limit, lists, closed, matrix, spare=MAX_RUIN)
    if len(locs) < 3:
        return visits_of(fleet)
    enqueue_all(fleet)
    while not is_over() and improve_part(fleet, MOVES_PER_CHECK) >= MOVES_PER_CHECK:
        if on_improvement is not None:
            on_improvement(fleet_cost(fleet))
    length = best = fleet_cost(fleet)
    saved, shortest = fleet.after.copy(), fleet.after.copy()
    fleet.changed[:] = False
    rng = np.random.default_rng(seed)
    leg = length / np.count_nonzero(fleet.after != np.arange(len(fleet.after)))
    started, done = time.perf_counter(), 0
    limit_of_ruins = UNLIMITED if max_ruins is None else max_ruins
    while done < limit_of_ruins and not is_over():
        if max_ruins is not None:
            share, expected = done / max_ruins, float(max_ruins)
        else:
            assert max_runtime is not None
            now = time.perf_counter()
            share = min((now - began) / max_runtime, 1.0)
            expected = done * (began + max_runtime - started) / max(now - started, 1e-9)
        heat = min(expected / (ITERATIONS_PER_CUSTOMER * len(locs)), 1.0)
        temperature = heat * leg * HOT * (COLD / HOT) ** share
        count = min(limit_of_ruins - done, RUINS_PER_CHECK)
        draws = rng.random((count, 4 + MAX_RUIN))
        length, shorter = _ruin_and_recreate(
            fleet, saved, shortest, draws, temperature, length, best
        )
        done += count
        if shorter < best and on_improvement is not None:
            on_improvement(shorter)
        best = shorter
    _adopt(fleet, shortest)
    return visits_of(fleet)


@compiled
def _ruin_and_recreate(
    f: Fleet,
    saved: Ints,
    shortest: Ints,
    draws: Floats,
    temperature: float,
    length: float,
    best: float,
) -> tuple[float, float]:
    """One iteration for each row of numbers in [0, 1); the current and the least length.

    `saved` has the links of the current routes, `shortest` those of the best ones; `f.changed` says
    which routes differ from `saved`.
    """
    removed = np.empty(MAX_RUIN, np.int64)
    for row in range(draws.shape[0]):
        before = 0.0
        count = _choose(f, draws[row], removed)
        for i in range(count):
            before += _remove(f, removed[i])
        for i in range(count):  # in random order
            j = i + int(draws[row, 4 + i] * (count - i))
            removed[i], removed[j] = removed[j], removed[i]
        after = 0.0
        for i in range(count):
            after += _reinsert(f, removed[i])
        change = after - before
        if change > MAX_WORSENING * before:
            clear(f.queue)
        else:
            change = _search(f, saved)
        accepted = -temperature * math.log(1.0 - draws[row, 3])
        if change < accepted - 1e-12:
            length += change
            _keep(f, saved)
            if length < best - 1e-12:
                best = length
                shortest[:] = saved
        else:
            _restore(f, saved)
    return length, best


@compiled
def _choose(f: Fleet, draws: Floats, removed: Ints) -> int:
    """Strings of customers around a random one; their number."""
    size = len(f.points)
    center = 1 + int(draws[0] * (size - 1))
    wanted = min(1 + int(draws[1] * MAX_RUIN), size - 1)
    longest = 1 + int(draws[2] * MAX_STRING)
    count = _add_string(f, center, longest, wanted, removed, 0)
    for v in f.neighbors[center]:
        if count >= wanted:
            break
        count = _add_string(f, v, longest, wanted, removed, count)
    return count


@compiled
def _add_string(f: Fleet, node: int, longest: int, wanted: int, removed: Ints, count: int) -> int:
    """Adds consecutive customers from a node on, unless its route has lost some already."""
    for i in range(count):
        if f.route[removed[i]] == f.route[node]:
            return count
    for _ in range(longest):
        if node >= len(f.points) or count >= wanted:
            break
        removed[count] = node
        count += 1
        node = f.after[node]
    return count


@compiled
def _remove(f: Fleet, node: int) -> float:
    """Removes a customer; returns how much shorter its route is."""
    p, x = f.before[node], f.after[node]
    lost = between(f, p, node) + between(f, node, x) - between(f, p, x)
    unlink(f, node)
    refresh(f, f.route[node])
    f.route[node] = -1
    enqueue(f, p)
    enqueue(f, x)
    return lost


@compiled
def _reinsert(f: Fleet, node: int) -> float:
    """Inserts a customer at its best place beside a neighbour, or into a new route."""
    size, spare = len(f.points), f.limit[0] - f.demand[node]
    best, place = np.inf, -1
    for v in f.neighbors[node]:
        if f.route[v] < 0 or f.load[f.route[v]] > spare:
            continue
        for p in (v, f.before[v]):
            x = f.after[p]
            added = between(f, p, node) + between(f, node, x) - between(f, p, x)
            if added < best:
                best, place = added, p
    alone = 2.0 * between(f, 0, node)
    if alone < best:
        for r in range(f.load.size - 1, -1, -1):  # spare routes are the last ones
            if f.size[r] == 0:
                best, place = alone, size + r
                break
    insert(f, node, place)
    refresh(f, f.route[place])
    enqueue(f, node)
    enqueue(f, f.before[node])
    enqueue(f, f.after[node])
    return best


@compiled
def _search(f: Fleet, saved: Ints) -> float:
    """Searches from the queue; returns how much longer the routes are than the saved ones."""
    improve_touched(f, UNLIMITED)
    change = 0.0
    for r in range(f.load.size):
        if f.changed[r]:
            change += route_length(f, f.after, r) - route_length(f, saved, r)
    return change


@compiled
def _keep(f: Fleet, saved: Ints) -> None:
    for r in range(f.load.size):
        if f.changed[r]:
            f.changed[r] = False
            depot = len(f.points) + r
            node = depot
            while True:
                saved[node] = f.after[node]
                node = saved[node]
                if node == depot:
                    break


@compiled
def _adopt(f: Fleet, after: Ints) -> None:
    """Sets all routes by their links."""
    for node in range(after.size):
        link(f, node, after[node])
    for r in range(f.load.size):
        refresh(f, r)


@compiled
def _restore(f: Fleet, saved: Ints) -> None:
    # A customer was in one changed route, so routes do not meet while they are linked again.
    for r in range(f.load.size):
        if f.changed[r]:
            depot = len(f.points) + r
            node = depot
            while True:
                link(f, node, saved[node])
                node = saved[node]
                if node == depot:
                    break
    for r in range(f.load.size):
        if f.changed[r]:
            refresh(f, r)
            f.changed[r] = False
