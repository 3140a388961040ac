"""Which constraints of a routing problem cannot hold together: a small set, by deletion.

Constraints are left out as long as the rest provably has no solution, first whole kinds of them,
then customers, until nothing can be left out. The number of vehicles is always part of it: with one
for each customer there would be a solution. So a conflict of one customer more than there are
vehicles is the smallest that there can be. Such are looked for first, as they are groups of
customers of whom no two fit one route; where there is none, customers are left out in several
orders, and the fewest count.
"""

from __future__ import annotations

import dataclasses
import random

from collections.abc import Sequence

import numpy as np

from rl4co.solvers._feasibility import Judge, exclusive_group, with_vehicle
from rl4co.solvers._problem import INFINITY, RoutingProblem

#: Kinds of constraints, as messages call them.
CAPACITY, WINDOWS, HOURS = "capacity", "time windows", "opening hours"
LENGTH, BACKHAULS = "max_length", "backhauls after linehauls"
KINDS = (WINDOWS, HOURS, CAPACITY, LENGTH, BACKHAULS)
#: Orders in which customers are left out.
NUM_ORDERS = 4


@dataclasses.dataclass(frozen=True)
class Conflict:
    """Constraints that cannot hold together, besides the number of vehicles.

    Attributes:
        kinds: Kinds of constraints.
        customers: Who cannot all be served.
        is_minimal: Whether all others can be served without any one of them.
    """

    kinds: tuple[str, ...]
    customers: tuple[int, ...]
    is_minimal: bool

    def restrict(self, problem: RoutingProblem) -> RoutingProblem:
        """The problem with nothing but this conflict."""
        others = [kind for kind in KINDS if kind not in self.kinds]
        return dataclasses.replace(without(problem, others), customers=self.customers)


def find_conflict(problem: RoutingProblem, judge: Judge) -> Conflict | None:
    """A set of constraints that cannot hold together; None: there is no proof."""
    return reduce_conflict(problem, judge) if judge.is_impossible(problem) else None


def reduce_conflict(problem: RoutingProblem, judge: Judge) -> Conflict:
    """A set of constraints of which none can be left out, as far as time allows.

    Args:
        problem: A problem that is known to have no solution.
        judge: Says what is known of parts of it.
    """
    exclusive, fewest = exclusive_group(problem), problem.vehicles[0].count + 1
    if len(exclusive) >= fewest:
        problem = dataclasses.replace(problem, customers=exclusive[:fewest])
    kinds = [kind for kind in KINDS if _has(problem, kind)]
    for group in ((WINDOWS, HOURS), (WINDOWS,), (HOURS,), (CAPACITY,), (LENGTH,), (BACKHAULS,)):
        if set(group) <= set(kinds):
            rest = without(problem, group)
            if judge.is_impossible(rest):
                problem, kinds = rest, [kind for kind in kinds if kind not in group]
    return _shrink(problem, tuple(kinds), judge)


def _shrink(problem: RoutingProblem, kinds: tuple[str, ...], judge: Judge) -> Conflict:
    """The conflict of the fewest customers that several orders of leaving them out give.

    All but the first order have half of the time: relaxations need some, too.
    """
    fewest, enough_time = problem.vehicles[0].count + 1, judge.left / 2
    order = sorted(problem.customers, key=lambda node: _tightness(problem, node))
    best = _leave_out(problem, kinds, order, judge)
    for seed in range(1, NUM_ORDERS):
        if len(best.customers) <= fewest or judge.left < enough_time:
            break
        random.Random(seed).shuffle(order)
        other = _leave_out(problem, kinds, order, judge)
        best = min(best, other, key=lambda conflict: len(conflict.customers))
    return best


def _leave_out(
    problem: RoutingProblem, kinds: tuple[str, ...], order: Sequence[int], judge: Judge
) -> Conflict:
    """Leaves out customers, large groups first, then single ones, as long as time allows."""
    customers, size, is_minimal = list(order), len(order) // 2, True
    while size:
        for group in [set(customers[k : k + size]) for k in range(0, len(customers), size)]:
            rest = [node for node in customers if node not in group]
            if not rest:
                continue
            if judge.left <= 0:  # fewer would have a vehicle each
                is_minimal = len(customers) <= problem.vehicles[0].count + 1
                return Conflict(kinds, tuple(sorted(customers)), is_minimal)
            verdict = judge.has_solution(dataclasses.replace(problem, customers=(*sorted(rest),)))
            if verdict is False:
                customers = rest
            elif size == 1:  # who is needed is needed as well when others are left out
                is_minimal = is_minimal and verdict is True
        size //= 2
    return Conflict(kinds, tuple(sorted(customers)), is_minimal)


def _tightness(problem: RoutingProblem, node: int) -> float:
    """How hard a customer is to serve: those who are easy are left out first."""
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
    """No route that waits only where it must ends later than this."""
    assert problem.windows is not None and problem.duration is not None
    service = 0.0 if problem.service is None else float(problem.service.sum())
    return float(problem.windows.max() + problem.duration.max(1).sum()) + service
