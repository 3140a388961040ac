"""Minimal conflicts: small sets of constraints that a routing problem cannot satisfy together.

Deletion filter: constraints are removed as long as the remaining problem is provably infeasible,
first whole kinds of constraints, then customers, until none can be removed. The number of vehicles
is always part of a conflict, since one vehicle for each customer would suffice. So the smallest
possible conflict has one customer more than there are vehicles. Groups of customers of whom no two
fit one route are such conflicts and are searched for first; otherwise customers are removed in
several orders, and the smallest conflict counts.
"""

from __future__ import annotations

import dataclasses
import random

from collections.abc import Sequence

import numpy as np

from rl4co.solvers._feasibility.bounds import exclusive_group
from rl4co.solvers._feasibility.checker import FeasibilityChecker, with_vehicle
from rl4co.solvers._problem import INFINITY, RoutingProblem

#: Kinds of constraints, as messages call them.
CAPACITY, WINDOWS, HOURS = "capacity", "time windows", "opening hours"
LENGTH, BACKHAULS = "max_length", "backhauls after linehauls"
KINDS = (WINDOWS, HOURS, CAPACITY, LENGTH, BACKHAULS)
#: Orders in which customers are removed.
NUM_ORDERS = 4


@dataclasses.dataclass(frozen=True)
class Conflict:
    """Constraints that cannot be satisfied together with the number of vehicles.

    Attributes:
        kinds: Kinds of constraints.
        customers: Customers that cannot all be served.
        is_minimal: Whether all others can be served without any one of them.
    """

    kinds: tuple[str, ...]
    customers: tuple[int, ...]
    is_minimal: bool

    def restrict(self, problem: RoutingProblem) -> RoutingProblem:
        """The problem with the constraints of this conflict only."""
        removed = [kind for kind in KINDS if kind not in self.kinds]
        return dataclasses.replace(without(problem, removed), customers=self.customers)


def find_conflict(problem: RoutingProblem, checker: FeasibilityChecker) -> Conflict | None:
    """A minimal conflict; None: infeasibility is not proven."""
    return reduce_conflict(problem, checker) if checker.is_infeasible(problem) else None


def reduce_conflict(problem: RoutingProblem, checker: FeasibilityChecker) -> Conflict:
    """A conflict from which no constraint can be removed, as far as time allows.

    Args:
        problem: A problem that has no solution.
        checker: Checks parts of the problem.
    """
    exclusive, fewest = exclusive_group(problem), problem.vehicles[0].count + 1
    if len(exclusive) >= fewest:
        problem = dataclasses.replace(problem, customers=exclusive[:fewest])
    kinds = [kind for kind in KINDS if _has(problem, kind)]
    for group in ((WINDOWS, HOURS), (WINDOWS,), (HOURS,), (CAPACITY,), (LENGTH,), (BACKHAULS,)):
        if set(group) <= set(kinds):
            relaxed = without(problem, group)
            if checker.is_infeasible(relaxed):
                problem, kinds = relaxed, [kind for kind in kinds if kind not in group]
    return _shrink(problem, tuple(kinds), checker)


def _shrink(
    problem: RoutingProblem, kinds: tuple[str, ...], checker: FeasibilityChecker
) -> Conflict:
    """The conflict with the fewest customers, of several orders in which they are removed.

    All orders but the first have half of the time: relaxations need time, too.
    """
    fewest, enough_time = problem.vehicles[0].count + 1, checker.left / 2
    order = sorted(problem.customers, key=lambda node: _tightness(problem, node))
    best = _remove_customers(problem, kinds, order, checker)
    for seed in range(1, NUM_ORDERS):
        if len(best.customers) <= fewest or checker.left < enough_time:
            break
        random.Random(seed).shuffle(order)
        candidate = _remove_customers(problem, kinds, order, checker)
        best = min(best, candidate, key=lambda conflict: len(conflict.customers))
    return best


def _remove_customers(
    problem: RoutingProblem,
    kinds: tuple[str, ...],
    order: Sequence[int],
    checker: FeasibilityChecker,
) -> Conflict:
    """Removes customers, large groups first, then single ones, as long as time allows."""
    customers, size, is_minimal = list(order), len(order) // 2, True
    while size:
        for group in [set(customers[k : k + size]) for k in range(0, len(customers), size)]:
            remaining = [node for node in customers if node not in group]
            if not remaining:
                continue
            if checker.left <= 0:  # with fewer customers each has a vehicle
                is_minimal = len(customers) <= problem.vehicles[0].count + 1
                return Conflict(kinds, tuple(sorted(customers)), is_minimal)
            is_feasible = checker.has_solution(
                dataclasses.replace(problem, customers=(*sorted(remaining),))
            )
            if is_feasible is False:
                customers = remaining
            elif size == 1:  # stays necessary when other customers are removed
                is_minimal = is_minimal and is_feasible is True
        size //= 2
    return Conflict(kinds, tuple(sorted(customers)), is_minimal)


def _tightness(problem: RoutingProblem, node: int) -> float:
    """How hard a customer is to serve; easy ones are removed first."""
    capacity, tight = problem.vehicles[0].capacity, 0.0
    if problem.delivery is not None and capacity != INFINITY:
        tight += float(problem.delivery[node]) / capacity
    if problem.windows is not None:
        width = float(np.ptp(problem.windows[node]))
        tight -= width / (float(np.ptp(problem.windows[0])) or 1.0)
    return tight


def _has(problem: RoutingProblem, kind: str) -> bool:
    (vehicle,) = problem.vehicles
    return {
        CAPACITY: problem.delivery is not None and vehicle.capacity != INFINITY,
        WINDOWS: problem.windows is not None,
        HOURS: problem.windows is not None and vehicle.end is not None,
        LENGTH: vehicle.max_length != INFINITY,
        BACKHAULS: problem.deliveries_first,
    }[kind]


def without(problem: RoutingProblem, kinds: Sequence[str]) -> RoutingProblem:
    """The problem without some kinds of constraints."""
    if CAPACITY in kinds:
        problem = with_vehicle(problem, capacity=INFINITY)
    if LENGTH in kinds:
        problem = with_vehicle(problem, max_length=INFINITY)
    if BACKHAULS in kinds:
        problem = dataclasses.replace(problem, deliveries_first=False)
    if problem.windows is None or not {WINDOWS, HOURS} & set(kinds):
        return problem
    if {WINDOWS, HOURS} <= set(kinds) or (WINDOWS in kinds and problem.vehicles[0].end is None):
        return dataclasses.replace(problem, windows=None, duration=None, service=None)
    windows = problem.windows.copy()
    if WINDOWS in kinds:
        windows[1:] = windows[0]
    else:
        windows[0, 1] = latest_end(problem)
    return dataclasses.replace(problem, windows=windows)


def latest_end(problem: RoutingProblem) -> float:
    """Latest end of routes that wait only where they must."""
    assert problem.windows is not None and problem.duration is not None
    service = 0.0 if problem.service is None else float(problem.service.sum())
    return float(problem.windows.max() + problem.duration.max(1).sum()) + service
