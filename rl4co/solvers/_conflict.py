"""Which constraints of a routing problem cannot hold together: a minimal set, by deletion.

Constraints are left out as long as the rest provably has no solution, first whole kinds of them,
then customers, until nothing can be left out. The number of vehicles is always part of it: with one
for each customer there would be a solution.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Sequence

import numpy as np

from rl4co.solvers._feasibility import Judge, with_vehicle
from rl4co.solvers._problem import INFINITY, RoutingProblem

#: Kinds of constraints, as messages call them.
CAPACITY, WINDOWS, HOURS = "capacity", "time windows", "opening hours"
LENGTH, BACKHAULS = "max_length", "backhauls after linehauls"
KINDS = (WINDOWS, HOURS, CAPACITY, LENGTH, BACKHAULS)


@dataclasses.dataclass(frozen=True)
class Conflict:
    """Constraints that cannot hold together, besides the number of vehicles.

    Attributes:
        kinds: Kinds of constraints.
        customers: Who cannot all be served.
    """

    kinds: tuple[str, ...]
    customers: tuple[int, ...]


def find_conflict(problem: RoutingProblem, judge: Judge) -> Conflict | None:
    """A set of constraints of which none can be left out, as far as time allows; None: no proof."""
    if not judge.is_impossible(problem):
        return None
    kinds = [kind for kind in KINDS if _has(problem, kind)]
    for group in ((WINDOWS, HOURS), (WINDOWS,), (HOURS,), (CAPACITY,), (LENGTH,), (BACKHAULS,)):
        if set(group) <= set(kinds):
            rest = without(problem, group)
            if judge.is_impossible(rest):
                problem, kinds = rest, [kind for kind in kinds if kind not in group]
    return Conflict(tuple(kinds), _shrink(problem, judge))


def _shrink(problem: RoutingProblem, judge: Judge) -> tuple[int, ...]:
    """Customers of whom none can be left out: large groups are tried first, then single ones."""
    customers = sorted(problem.customers, key=lambda node: _tightness(problem, node))
    size = len(customers) // 2
    while size:
        for group in [customers[k : k + size] for k in range(0, len(customers), size)]:
            rest = [node for node in customers if node not in group]
            smaller = dataclasses.replace(problem, customers=tuple(sorted(rest)))
            if rest and judge.is_impossible(smaller):
                customers = rest
        size //= 2
    return tuple(sorted(customers))


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
