"""Local search for capacitated routes on neighbour lists: any number of customers.

Moves: relocate and swap of one or two customers, 2-opt within a route, 2-opt* between two (tails
are exchanged, or a tail and a reversed head), and SWAP* (two customers of neighbouring routes are
exchanged, each to its best position; Vidal, 2022). A customer is visited again only if something
beside it has changed. Memory grows with the number of customers, not with its square.

:mod:`rl4co.envs.routing.cvrp.local_search` is for asymmetric matrices and tries all moves.
"""

from __future__ import annotations

import numpy as np

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError, InvalidInstanceError
from rl4co.envs.routing._node_queue import Ints, is_empty, pop
from rl4co.envs.routing.cvrp.fleet import (
    NUM_NEIGHBORS,
    Fleet,
    customer_lists,
    enqueue,
    enqueue_all,
    fleet_cost,
    insert,
    make_fleet,
    refresh,
    unlink,
    visits_of,
)
from rl4co.envs.routing.cvrp.local_search import check_loads, check_visits, to_routes
from rl4co.envs.routing.cvrp.moves import improve_customer
from rl4co.envs.routing.cvrp.swap_star import best_swap_star
from rl4co.envs.routing.tsp.cycle import UNLIMITED
from rl4co.envs.routing.tsp.guided_search import check_guide
from rl4co.kernels import compiled, run_in_chunks


def improve_fleet(
    locs: np.ndarray,
    demand: np.ndarray,
    capacity: np.ndarray,
    actions: np.ndarray,
    max_iterations: int | None = None,
    capacity_tolerance: float = 1e-5,
    num_neighbors: int = NUM_NEIGHBORS,
    swap_star: bool = True,
    guide: np.ndarray | None = None,
    rounds: int = 10,
    perturbations: int = 20,
    threads: int = 1,
) -> Ints:
    """Improves solutions until no move on the neighbour lists helps.

    The result is never longer than the input and never has more routes; routes that run empty
    disappear.

    Args:
        locs: Coordinates; node 0 is the depot.
        demand: Demand of the nodes, 0 at the depot.
        capacity: Capacity of the vehicles, in the unit of `demand`.
        actions: Visited nodes; 0 separates routes, and zeros at the end are padding. Solution
            `s * B + b` belongs to instance `b`.
        max_iterations: Most moves applied to one solution in one search (default: no limit).
        capacity_tolerance: Accepted overload, relative to the capacity.
        num_neighbors: Neighbours of each customer that new edges may lead to.
        swap_star: Whether SWAP* is among the moves.
        guide: Lengths as a heatmap measures them, for perturbations; see
            :func:`rl4co.envs.routing.tsp.guided_search.guide_from_heatmap`.
        rounds: Perturbations by the guide, if there is one, each followed by a search; the best
            solution counts.
        perturbations: Most moves of a perturbation.
        threads: Threads that share the solutions.

    Shapes:
        locs `[B, N, 2]`, demand `[B, N]`, capacity `[B]`, actions `[S * B, T]`, guide `[B, N, N]` →
        `[S * B, T']`, padded with zeros

    Example:
        >>> line = np.array([[[0, 0], [1, 0], [2, 0], [-1, 0], [-2, 0]]])
        >>> mixed = np.array([[1, 4, 0, 3, 2]])
        >>> improve_fleet(line, np.array([[0, 1, 1, 1, 1]]), np.array([2]), mixed).tolist()
        [[1, 2, 0, 3, 4]]
    """
    locs, demand = np.asarray(locs, dtype=np.float64), np.asarray(demand, dtype=np.float64)
    actions = np.asarray(actions)
    limit = np.asarray(capacity, dtype=np.float64) * (1 + capacity_tolerance)
    if locs.ndim != 3 or actions.ndim != 2 or len(actions) % len(locs):
        raise ConfigError(
            "expected locs of shape [B, N, 2] and actions of shape [S * B, T], "
            f"got {list(locs.shape)} and {list(actions.shape)}"
        )
    batch, size = locs.shape[:2]
    if demand.shape != (batch, size) or limit.shape != (batch,):
        raise ConfigError(
            f"expected demand of shape {[batch, size]} and capacity of shape {[batch]}, "
            f"got {list(demand.shape)} and {list(limit.shape)}"
        )
    if not np.isfinite(locs).all():
        raise InvalidInstanceError("expected finite coordinates, got NaN or infinity")
    check_at_least(0, max_iterations=max_iterations)
    if guide is not None:
        check_guide(guide, batch, size, rounds, perturbations)
    routes = to_routes(actions)  # [S * B, L]
    check_visits(routes, size)
    instance = np.arange(len(actions)) % batch
    check_loads(routes, demand[instance], limit[instance])
    budget = UNLIMITED if max_iterations is None else max_iterations
    if size < 3:
        return np.ascontiguousarray(routes[:, 1 : size + 1])
    lists = [customer_lists(points, num_neighbors) for points in locs]
    improved: list[Ints] = [np.empty(0, np.int64)] * len(actions)

    def run(rows: range) -> None:
        for row in rows:
            b = row % batch
            fleet = make_fleet(locs[b], demand[b], limit[b], lists[b], routes[row])
            improve_all(fleet, budget, swap_star)
            best = visits_of(fleet)
            if guide is not None:
                best = _guided(fleet, guide[b], best, rounds, perturbations, budget, swap_star)
            improved[row] = best

    run_in_chunks(run, len(actions), threads)
    width = max(size, max(len(visits) for visits in improved))
    result = np.zeros((len(actions), width), dtype=np.int64)
    for row, visits in enumerate(improved):
        result[row, : len(visits)] = visits
    return result


def _guided(
    fleet: Fleet,
    guide: np.ndarray,
    best: Ints,
    rounds: int,
    perturbations: int,
    budget: int,
    swap_star: bool,
) -> Ints:
    """The best solution of several rounds of perturbation by the guide and search."""
    shortest = fleet_cost(fleet)
    guided = fleet._replace(matrix=np.ascontiguousarray(guide, dtype=np.float64))
    for _ in range(rounds):
        enqueue_all(guided)
        improve_touched(guided, perturbations)
        improve_all(fleet, budget, swap_star)
        length = fleet_cost(fleet)
        if length < shortest:
            shortest, best = length, visits_of(fleet)
    return best


# --------------------------------------------------------------------------------------------------
# Kernels


@compiled
def improve_all(f: Fleet, budget: int, swap_star: bool) -> int:
    """Searches from all customers to a local optimum; the number of moves."""
    enqueue_all(f)
    used = 0
    while True:
        used += improve_touched(f, budget - used)
        if not swap_star or used >= budget or f.load.size < 2:
            return used
        moved = _swap_star_round(f, budget - used)
        used += moved
        if moved == 0:
            return used


@compiled
def improve_touched(f: Fleet, budget: int) -> int:
    """Searches from the customers in the queue; the number of moves.

    If the budget is used up, the other customers stay in the queue.
    """
    moves = 0
    while not is_empty(f.queue) and moves < budget:
        u = pop(f.queue)
        while moves < budget and improve_customer(f, u):
            moves += 1
        if moves == budget:
            enqueue(f, u)
    return moves


@compiled
def improve_part(f: Fleet, budget: int) -> int:
    """Continues a search from the queue and the changed routes; a result below the budget ends it.

    The budget counts moves, and routes that SWAP* visits, which takes long for long routes.
    """
    used = 0
    while used < budget:
        used += improve_touched(f, budget - used)
        r = 0
        while r < f.load.size and not f.changed[r]:
            r += 1
        if r == f.load.size or f.load.size < 2:
            break
        if used < budget:
            used += 1 + _swap_star_route(f, r, 1)
    return used


@compiled
def _swap_star_round(f: Fleet, budget: int) -> int:
    """SWAP* between every changed route and those beside it; the number of moves."""
    moves = 0
    for r in range(f.load.size):
        if f.changed[r]:
            moves += _swap_star_route(f, r, budget - moves)
    return moves


@compiled
def _swap_star_route(f: Fleet, r: int, budget: int) -> int:
    """SWAP* between a route and those beside it; the number of moves."""
    size, count = len(f.points), f.load.size
    seen = np.zeros(count, np.bool_)
    costs = np.empty((2, size, 3))
    places = np.empty((2, size, 3), np.int64)
    moves = 0
    f.changed[r] = False
    depot = size + r
    node = f.after[depot]
    while node != depot and moves < budget:
        following = f.after[node]
        for v in f.neighbors[node]:
            other = f.route[v]
            if other == r or seen[other]:
                continue
            seen[other] = True
            gain, a, b, a_place, b_place = best_swap_star(f, r, other, costs, places)
            if gain <= 0.0:
                continue
            _apply_swap_star(f, a, b, a_place, b_place)
            moves += 1
            following = f.after[depot]  # the route has changed
            break
        node = following
    return moves


@compiled
def _apply_swap_star(f: Fleet, a: int, b: int, a_place: int, b_place: int) -> None:
    """Moves a behind `a_place` and b behind `b_place`; a place may be the other customer."""
    one, other = f.route[a], f.route[b]
    p, x, q, y = f.before[a], f.after[a], f.before[b], f.after[b]
    unlink(f, a)
    unlink(f, b)
    insert(f, a, q if a_place == b else a_place)
    insert(f, b, p if b_place == a else b_place)
    refresh(f, one)
    refresh(f, other)
    for node in (a, b, p, x, q, y, f.before[a], f.after[a], f.before[b], f.after[b]):
        enqueue(f, node)
