"""Bounds that prove at once that a routing problem has no solution, without a search."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4co.solvers._problem import INFINITY, Array, RoutingProblem, Vehicle

#: Most customers whose pairs are compared.
MAX_PAIRED = 300


def needs_more_vehicles(problem: RoutingProblem) -> bool:
    """Whether loads, or customers of whom no two fit one route, need more vehicles."""
    (vehicle,) = problem.vehicles
    customers = np.array(problem.customers, dtype=np.int64)
    for loads in (problem.delivery, problem.pickup):
        if loads is not None and loads[customers].sum() > vehicle.count * vehicle.capacity:
            return True
    return vehicle.count < len(customers) and len(exclusive_group(problem)) > vehicle.count


def exclusive_group(problem: RoutingProblem) -> tuple[int, ...]:
    """A large set of customers of whom no two fit one route; empty for too many customers."""
    customers = np.array(problem.customers, dtype=np.int64)
    if len(customers) > MAX_PAIRED:
        return ()
    clique = _large_clique(_incompatible_pairs(problem, customers))
    return tuple(sorted(customers[clique].tolist()))


def _incompatible_pairs(problem: RoutingProblem, customers: Any) -> Any:
    """Pairs of customers that no route can visit both, in any order, `[n, n]`."""
    (vehicle,) = problem.vehicles
    incompatible = np.zeros((len(customers), len(customers)), dtype=np.bool_)
    for loads in (problem.delivery, problem.pickup):
        if loads is not None:
            load = loads[customers]
            incompatible |= load[:, None] + load[None, :] > vehicle.capacity
    if problem.windows is not None and problem.duration is not None:
        service = np.zeros(len(problem.length)) if problem.service is None else problem.service
        late = _too_late(problem.windows, problem.duration, service, vehicle)
        incompatible |= (late & late.T)[np.ix_(customers, customers)]
    if vehicle.max_length != INFINITY:
        paths = _shortest(problem.length)
        length = paths[0][:, None] + paths + (0.0 if vehicle.end is None else paths[:, 0][None, :])
        long = length > vehicle.max_length  # depot, row, column, depot
        incompatible |= (long & long.T)[np.ix_(customers, customers)]
    np.fill_diagonal(incompatible, False)
    return incompatible


def _too_late(windows: Array, duration: Array, service: Array, vehicle: Vehicle) -> Any:
    """Whether column cannot be served after row, however early that was, `[N, N]`."""
    paths = _shortest(duration)
    opening, closing = windows.T
    start = np.maximum(opening[0] + paths[0], opening)  # [N]
    arrival = (start + service)[:, None] + paths  # [N, N]
    late = arrival > closing[None, :]
    if vehicle.end is not None:
        leave = np.maximum(arrival, opening[None, :]) + service[None, :]
        late |= leave + paths[:, 0][None, :] > closing[0]
    return late


def _shortest(matrix: Array) -> Array:
    """Lengths of shortest paths between all nodes `[N, N]`."""
    paths = matrix.copy()
    for node in range(len(paths)):
        np.minimum(paths, paths[:, node, None] + paths[None, node, :], out=paths)
    return paths


def _large_clique(pairs: Any) -> list[int]:
    """A large set of rows of which all pairs are marked: the best of greedy ones from each row."""
    order = np.argsort(-pairs.sum(0), kind="stable")
    largest: list[int] = []
    for first in order:
        members = [int(first)]
        candidates = pairs[first].copy()
        for node in order:
            if candidates[node]:
                members.append(int(node))
                candidates &= pairs[node]
        largest = max(largest, members, key=len)
    return largest
