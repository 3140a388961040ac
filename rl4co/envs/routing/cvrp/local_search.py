"""Local search for capacitated vehicle routes, on batches of distance matrices.

All moves are one operation on the sequence of visits, depots included: two segments, one of them
possibly empty, are exchanged, each possibly reversed. Reversing a segment of a route is 2-opt,
exchanging up to three customers with up to three others is relocate, Or-opt, swap and cross
exchange, exchanging whole route ends is 2-opt*. Matrices may be asymmetric.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, InvalidSolutionError, UnsupportedError
from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.tsp.guided_search import check_unguided, guide_from_heatmap
from rl4co.envs.routing.tsp.local_search import MIN_GAIN, as_finite_distances, path_length
from rl4co.kernels import compiled, run_in_chunks

MAX_SEGMENT = 3


def search_routes(
    locs: np.ndarray | None,
    matrix: np.ndarray | None,
    demand: np.ndarray,
    capacity: np.ndarray,
    actions: np.ndarray,
    heatmap: np.ndarray | None = None,
    **options: Any,
) -> np.ndarray:
    """Improves solutions by the search that suits the instance; `env.local_search` calls it.

    Coordinates alone are searched on neighbour lists
    (:func:`~rl4co.envs.routing.cvrp.neighbor_search.improve_fleet`), matrices, which may be
    asymmetric, by :func:`improve_routes`.

    Args:
        locs: Coordinates; node 0 is the depot.
        matrix: Distances in place of Euclidean ones.
        demand: Demand of the nodes, 0 at the depot.
        capacity: Capacity of the vehicles, in the unit of `demand`.
        actions: Visited nodes; 0 separates routes, and zeros at the end are padding. Solution
            `s * B + b` belongs to instance `b`.
        heatmap: Weights of edges that guide perturbations, zero where pruned.
        options: Further arguments of the function that is called: `max_iterations`, `threads`, ...

    Shapes:
        locs `[B, N, 2]`, matrix `[B, N, N]`, demand `[B, N]`, capacity `[B]`, actions
        `[S * B, T]`, heatmap `[B, N, N]` → `[S * B, T']`
    """
    from rl4co.envs.routing.cvrp.neighbor_search import improve_fleet

    if heatmap is None:
        check_unguided(options)
    if matrix is None and locs is not None:
        guide = None if heatmap is None else guide_from_heatmap(heatmap)
        return improve_fleet(locs, demand, capacity, actions, guide=guide, **options)
    if heatmap is not None:
        raise UnsupportedError(
            "expected coordinates for a search that a heatmap guides, got a matrix of distances"
        )
    assert matrix is not None  # one of the two is there
    return improve_routes(matrix, demand, capacity, actions, **options)


def improve_routes(
    distances: np.ndarray,
    demand: np.ndarray,
    capacity: np.ndarray,
    actions: np.ndarray,
    max_iterations: int = 1000,
    capacity_tolerance: float = 1e-5,
    threads: int = 1,
) -> np.ndarray:
    """Improves solutions until no exchange of segments shortens them.

    The result is never longer than the input and never has more routes; routes that run empty
    disappear.

    Args:
        distances: Distance from row to column; node 0 is the depot. The diagonal is not read.
        demand: Demand of the nodes, 0 at the depot.
        capacity: Capacity of the vehicles, in the unit of `demand`.
        actions: Visited nodes; 0 separates routes, and zeros at the end are padding. Solution
            `s * B + b` belongs to instance `b`.
        max_iterations: Most moves applied to one solution.
        capacity_tolerance: Accepted overload, relative to the capacity.
        threads: Threads that share the batch.

    Returns:
        Improved actions without empty routes, padded with zeros to the longest solution. Each
        solution has at least one depot visit: a single route ends with it, as episodes do.

    Shapes:
        distances `[B, N, N]`, demand `[B, N]`, capacity `[B]`, actions `[S * B, T]` →
        `[S * B, T']`

    Example:
        >>> x = np.array([0.0, 1.0, 2.0, -1.0, -2.0])  # customers left and right of the depot
        >>> distances = np.abs(x[:, None] - x[None])
        >>> mixed = np.array([[1, 4, 0, 3, 2]])
        >>> improve_routes(
        ...     distances[None], np.array([[0, 1, 1, 1, 1]]), np.array([2]), mixed
        ... ).tolist()
        [[1, 2, 0, 3, 4]]
    """
    distances, actions = np.asarray(distances), np.asarray(actions)
    demand = np.asarray(demand, dtype=np.float64)
    limit = np.asarray(capacity, dtype=np.float64) * (1 + capacity_tolerance)
    if actions.ndim != 2 or demand.ndim != 2 or not demand.size:
        raise ConfigError(
            "expected actions of shape [S * B, T] and demand of shape [B, N], "
            f"got {list(actions.shape)} and {list(demand.shape)}"
        )
    batch, size = demand.shape
    if len(actions) % batch:
        raise ConfigError(f"expected solutions of all {batch} instances, got {len(actions)} rows")
    for name, array, shape in (
        ("distances", distances, (batch, size, size)),
        ("demand", demand, (batch, size)),
        ("capacity", limit, (batch,)),
    ):
        if array.shape != shape:
            raise ConfigError(f"expected {name} of shape {list(shape)}, got {list(array.shape)}")
    check_at_least(0, max_iterations=max_iterations)
    distances = as_finite_distances(distances)

    routes = to_routes(actions)  # [B, L]
    check_visits(routes, size)
    instance = np.arange(len(actions)) % batch
    check_loads(routes, demand[instance], limit[instance])
    run_in_chunks(
        lambda rows: _search_rows(
            distances, demand, limit, routes, rows.start, rows.stop, max_iterations
        ),
        len(actions),
        threads,
    )
    lengths = size - 2 + _count_routes(routes)  # customers and the depots between them
    width = max(int(lengths.max()), size)
    return np.ascontiguousarray(routes[:, 1 : width + 1])  # without the depot in front


def to_routes(actions: np.ndarray) -> np.ndarray:
    """Visits with exactly one depot before, between and after the routes, then zero padding.

    Shapes:
        actions `[B, T]` → `[B, T + 2]`
    """
    visits = np.pad(actions.astype(np.int64), ((0, 0), (1, 1)))  # [B, T + 2]
    keep = np.ones(visits.shape, dtype=bool)
    keep[:, 1:] = (visits[:, 1:] != 0) | (visits[:, :-1] != 0)
    order = np.argsort(~keep, axis=1, kind="stable")  # doubled depots go to the end
    return np.take_along_axis(visits, order, axis=1)


def _count_routes(routes: np.ndarray) -> np.ndarray:
    """Number of routes of each solution: `[B, L]` → `[B]`."""
    return ((routes[:, :-1] == 0) & (routes[:, 1:] != 0)).sum(axis=1)


def check_visits(routes: np.ndarray, size: int) -> None:
    """Raises unless every customer 1..size-1 occurs exactly once and nothing else occurs."""
    customers = np.sort(routes, axis=1)
    expected = np.zeros_like(customers)
    if expected.shape[1] >= size:
        expected[:, expected.shape[1] - size + 1 :] = np.arange(1, size)
    broken = (customers != expected).any(axis=1) | (expected.shape[1] < size)
    if broken.any():
        raise InvalidSolutionError(
            "every customer is visited exactly once", broken.nonzero()[0].tolist(), len(routes)
        )


def check_loads(routes: np.ndarray, demand: np.ndarray, limit: np.ndarray) -> None:
    """Raises unless every route's demand is within its limit."""
    batch, length = routes.shape
    route = np.cumsum(routes == 0, axis=1) - 1  # [B, L], index of the route of each visit
    loads = np.zeros((batch, length))
    rows = np.arange(batch)[:, None]
    np.add.at(loads, (rows, route), np.take_along_axis(demand, routes, axis=1) * (routes > 0))
    broken = (loads > limit[:, None]).any(axis=1)
    if broken.any():
        raise InvalidSolutionError(
            "no route exceeds the vehicle capacity", broken.nonzero()[0].tolist(), batch
        )


# --------------------------------------------------------------------------------------------------
# Kernels. Position p stands for the gap after visit p as well. A move (p, a, q, b, flip_a, flip_b)
# lets the a visits after p and the b visits after q change places, each reversed or not, with
# p + a < q. Only (p, a, p + a, 0, True, False) touches itself: it reverses a segment on the spot.

Move: TypeAlias = "tuple[int, int, int, int, bool, bool]"


class Plan(NamedTuple):
    """One solution with data for its moves; the arrays change in place."""

    visits: Ints  # [L], one depot before, between and after the routes, then zero padding
    begin: Ints  # [L], position of the depot at or before p
    end: Ints  # [L], position of the next depot after p
    load: Floats  # [L], demand of the route up to and including p
    extra: Floats  # [L], walking i..j backwards costs extra[j] - extra[i] more than forwards


@compiled
def _search_rows(
    distances: Floats,
    demand: Floats,
    limit: Floats,
    routes: Ints,
    start: int,
    stop: int,
    budget: int,
) -> None:
    """Improves the solutions `start`..`stop` in place."""
    width = routes.shape[1]
    for row in range(start, stop):
        instance = row % distances.shape[0]
        # Sums of float32 edges lose more than the smallest gain; one copy is cheap.
        d = distances[instance].astype(np.float64)
        d[0, 0] = 0.0  # an empty route has length 0
        plan = Plan(
            routes[row].copy(),
            np.zeros(width, np.int64),
            np.zeros(width, np.int64),
            np.zeros(width),
            np.zeros(width),
        )
        length = _index(d, demand[instance], plan)
        cost = path_length(d, plan.visits)
        used, p = 0, 0
        quiet = 0  # gaps scanned in a row without a move
        while used < budget and quiet < length:
            gain, move = _best_move(d, limit[instance], plan, length, p)
            if gain > 0.0:
                _apply(plan.visits, move)
                length = _index(d, demand[instance], plan)
                used, quiet = used + 1, 0
            else:
                p, quiet = p + 1, quiet + 1
            if p >= length - 1:
                p = 0
        # Rounding of huge entries (forbidden arcs) can fake a gain; routes never get longer.
        if path_length(d, plan.visits) < cost:
            routes[row] = plan.visits


@compiled
def _index(d: Floats, demand: Floats, plan: Plan) -> int:
    """Drops empty routes and recomputes the data of all positions; returns the length."""
    visits, begin, end, load, extra = plan
    length = 1
    for i in range(1, visits.size):
        if visits[i] != 0 or visits[length - 1] != 0:
            visits[length] = visits[i]
            length += 1
    visits[length:] = 0
    opening = 0
    for i in range(length):
        node = visits[i]
        if node == 0:
            end[opening:i] = i
            opening, load[i] = i, 0.0
        else:
            load[i] = load[i - 1] + demand[node]
        begin[i] = opening
        if i > 0:
            extra[i] = extra[i - 1] + d[node, visits[i - 1]] - d[visits[i - 1], node]
    return length


@compiled
def _apply(visits: Ints, move: Move) -> None:
    p, a, q, b, flip_a, flip_b = move
    first, second = visits[p + 1 : p + a + 1].copy(), visits[q + 1 : q + b + 1].copy()
    middle = visits[p + a + 1 : q + 1].copy()
    if flip_a:
        first = first[::-1].copy()
    if flip_b:
        second = second[::-1].copy()
    visits[p + 1 : p + 1 + b] = second
    visits[p + 1 + b : q + 1 + b - a] = middle
    visits[q + 1 + b - a : q + 1 + b] = first


@compiled
def _best_move(d: Floats, limit: float, plan: Plan, length: int, p: int) -> tuple[float, Move]:
    """Best move whose first gap is p, with its gain; a gain of 0 means none."""
    best, move = 0.0, (p, 0, p, 0, False, False)
    for q in range(p + 1, length - 1):
        if plan.begin[p] == plan.begin[q]:
            gain, candidate = _reversal(d, plan, p, q)
        else:
            gain, candidate = _tails(d, limit, plan, p, q)
        if gain > best:
            best, move = gain, candidate
        gain, candidate = _exchange(d, limit, plan, p, q)
        if gain > best:
            best, move = gain, candidate
    return best, move


@compiled
def _reversal(d: Floats, plan: Plan, p: int, q: int) -> tuple[float, Move]:
    """2-opt: walk the visits p+1..q of one route backwards."""
    visits, extra = plan.visits, plan.extra
    a, b, c, e = visits[p], visits[p + 1], visits[q], visits[q + 1]
    removed, added = d[a, b] + d[c, e], extra[q] - extra[p + 1]
    gain = removed - d[a, c] - d[b, e] - added
    threshold = MIN_GAIN * (abs(removed) + abs(added))
    return gain if gain > threshold else 0.0, (p, q - p, q, 0, True, False)


@compiled
def _tails(d: Floats, limit: float, plan: Plan, p: int, q: int) -> tuple[float, Move]:
    """2-opt*: cut two routes after p and q and join the four parts the other way."""
    visits, begin, end, load, extra = plan
    a, b, c, e = visits[p], visits[p + 1], visits[q], visits[q + 1]
    first, second = load[end[p] - 1], load[end[q] - 1]
    removed = d[a, b] + d[c, e]
    best, tail = 0.0, end[p] - 1 - p
    move = (p, 0, p, 0, False, False)
    # Exchange the tails.
    if load[p] + second - load[q] <= limit and load[q] + first - load[p] <= limit:
        gain = removed - d[a, e] - d[c, b]
        if gain > MIN_GAIN * abs(removed):
            best, move = gain, (p, tail, q, end[q] - 1 - q, False, False)
    # Exchange the first tail and the second head, both reversed.
    if load[p] + load[q] <= limit and first - load[p] + second - load[q] <= limit:
        added = extra[end[p]] - extra[p + 1] + extra[q] - extra[begin[q]]
        gain = removed - d[a, c] - d[b, e] - added
        if gain > max(best, MIN_GAIN * (abs(removed) + abs(added))):
            best, move = gain, (p, tail, begin[q], q - begin[q], True, True)
    return best, move


@compiled
def _exchange(d: Floats, limit: float, plan: Plan, p: int, q: int) -> tuple[float, Move]:
    """Exchange up to three visits after p with up to three after q; one side may be empty."""
    visits, begin, end, load, _ = plan
    same = begin[p] == begin[q]
    first, second = load[end[p] - 1], load[end[q] - 1]
    best, move = 0.0, (p, 0, p, 0, False, False)
    for a in range(min(MAX_SEGMENT, end[p] - 1 - p, q - p - 1) + 1):
        left, right = visits[p], visits[p + a + 1]
        out = load[p + a] - load[p]
        for b in range(a == 0, min(MAX_SEGMENT, end[q] - 1 - q) + 1):
            shift = load[q + b] - load[q] - out
            if not same and (first + shift > limit or second - shift > limit):
                continue
            before, after = visits[q], visits[q + b + 1]
            old = d[left, visits[p + 1]] + d[before, visits[q + 1]]
            if a:
                old += d[visits[p + a], right]
            if b:
                old += d[visits[q + b], after]
            new_b, flip_b = _link(d, plan, left, q + 1, b, right)
            new_a, flip_a = _link(d, plan, before, p + 1, a, after)
            gain = old - new_a - new_b
            if gain > max(best, MIN_GAIN * abs(old)):
                best, move = gain, (p, a, q, b, flip_a, flip_b)
    return best, move


@compiled
def _link(d: Floats, plan: Plan, left: int, i: int, count: int, right: int) -> tuple[float, bool]:
    """Cost of placing the `count` visits from i on between two nodes, and whether reversed.

    Distances inside the segment are left out, except for what reversing it adds.
    """
    if count == 0:
        return d[left, right], False
    head, tail = plan.visits[i], plan.visits[i + count - 1]
    forward = d[left, head] + d[tail, right]
    backward = d[left, tail] + d[head, right] + plan.extra[i + count - 1] - plan.extra[i]
    return min(forward, backward), backward < forward
