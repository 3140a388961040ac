"""Relaxations of an infeasible instance: the smallest changes that allow a solution.

Every change that is named has been solved.
"""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Callable, Iterator

import numpy as np

from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._feasibility.checker import FeasibilityChecker, with_vehicle
from rl4co.solvers._feasibility.conflict import (
    CAPACITY,
    HOURS,
    LENGTH,
    WINDOWS,
    Conflict,
    latest_end,
)
from rl4co.solvers._problem import RoutingProblem

#: Most time windows of which the smallest change is computed.
MOST_WIDENED = 6
#: Relative precision of the smallest change.
PRECISION = 0.01


def find_relaxations(
    instance: BenchmarkInstance,
    problem: RoutingProblem,
    conflict: Conflict,
    checker: FeasibilityChecker,
) -> Iterator[str]:
    """Changes other than vehicles that allow a solution, in words; the smallest of each kind.

    Args:
        instance: The instance.
        problem: Its formulation.
        conflict: Constraints that cannot be satisfied together.
        checker: Solves relaxed problems.
    """
    if CAPACITY in conflict.kinds:
        yield from _more_capacity(instance, problem, checker)
    if {WINDOWS, HOURS} & set(conflict.kinds):
        yield from _wider_window(instance, problem, conflict, checker)
    if LENGTH in conflict.kinds:
        yield from _longer_routes(instance, problem, checker)
    yield from _fewer_customers(instance, problem, conflict, checker)


def more_vehicles(problem: RoutingProblem, checker: FeasibilityChecker) -> Iterator[str]:
    """How many vehicles suffice, in words; the fewest if time allows."""
    count = problem.vehicles[0].count
    routes = checker.find_routes(with_vehicle(problem, count=len(problem.customers)))
    if routes is None:
        return
    more = _smallest_change(
        lambda extra: with_vehicle(problem, count=count + int(extra)),
        len(routes) - count,
        checker,
        is_integer=True,
    )
    needed = len(routes) if more is None else count + int(more)
    yield f"with {needed} vehicles (--vehicles {needed})"


def _more_capacity(
    instance: BenchmarkInstance, problem: RoutingProblem, checker: FeasibilityChecker
) -> Iterator[str]:
    capacity = problem.vehicles[0].capacity
    loads = [load for load in (problem.delivery, problem.pickup) if load is not None]
    more = _smallest_change(
        lambda extra: with_vehicle(problem, capacity=capacity + extra),
        max(float(load.sum()) for load in loads) - capacity,
        checker,
        is_integer=_is_whole(capacity, *loads),
    )
    if more is not None and instance.capacity is not None:
        yield f"with a capacity of {instance.capacity + more:.10g} ({more:.10g} more)"


def _wider_window(
    instance: BenchmarkInstance,
    problem: RoutingProblem,
    conflict: Conflict,
    checker: FeasibilityChecker,
) -> Iterator[str]:
    """The window (of a customer or the depot) with the smallest extension; else all windows."""
    windows, stated = problem.windows, instance.time_windows
    assert windows is not None and stated is not None and problem.duration is not None
    is_integer = _is_whole(stated, problem.duration, problem.service)

    def extension(node: int | slice, most: float) -> float | None:
        def change(extra: float) -> RoutingProblem:
            changed = windows.copy()
            changed[node, 1] += extra
            return dataclasses.replace(problem, windows=changed)

        return _smallest_change(change, most, checker, is_integer)

    closing = float(windows[0, 1])
    most: dict[int, float] = {}
    if WINDOWS in conflict.kinds:
        most |= {n: closing - float(windows[n, 1]) for n in conflict.customers[:MOST_WIDENED]}
    if HOURS in conflict.kinds:
        most[0] = latest_end(problem) - closing
    best: tuple[float, int] | None = None
    for node, limit in most.items():
        if best is not None:  # only a smaller change is of interest
            limit = min(limit, best[0] - 1.0 if is_integer else best[0] * (1.0 - PRECISION))
        extra = extension(node, limit)
        best = best if extra is None else (extra, node)
    if best is not None:
        extra, node = best
        end = f"{stated[node, 1] + extra:.10g} ({extra:.10g} later)"
        yield f"with a time window of {instance.name_of(node)} that ends at {end}"
        return
    extra = extension(slice(1, None), closing - float(windows[1:, 1].min()))
    if extra is not None:
        yield f"with all time windows of customers ending {extra:.10g} later"


def _longer_routes(
    instance: BenchmarkInstance, problem: RoutingProblem, checker: FeasibilityChecker
) -> Iterator[str]:
    limit = problem.vehicles[0].max_length
    more = _smallest_change(
        lambda extra: with_vehicle(problem, max_length=limit + extra),
        float(problem.length.max(1).sum()) - limit,
        checker,
        is_integer=_is_whole(instance.max_length, problem.length),
    )
    if more is not None and instance.max_length is not None:
        yield f"with a max_length of {instance.max_length + more:.10g} ({more:.10g} more)"


def _fewer_customers(
    instance: BenchmarkInstance,
    problem: RoutingProblem,
    conflict: Conflict,
    checker: FeasibilityChecker,
) -> Iterator[str]:
    for removed in conflict.customers:
        remaining = tuple(node for node in problem.customers if node != removed)
        if checker.find_routes(dataclasses.replace(problem, customers=remaining)) is not None:
            yield f"without {instance.name_of(removed)}"
            return


def _smallest_change(
    change: Callable[[float], RoutingProblem],
    most: float,
    checker: FeasibilityChecker,
    is_integer: bool,
) -> float | None:
    """The smallest change with which a problem has a solution; None: the largest does not suffice.

    Args:
        change: Returns the problem after a change; larger changes are never worse.
        most: The largest change.
        checker: Solves problems.
        is_integer: Whether the change is a whole number.
    """
    insufficient, sufficient = 0.0, math.ceil(most) if is_integer else most
    if most <= 0 or checker.find_routes(change(sufficient)) is None:
        return None
    while sufficient - insufficient > (1.0 if is_integer else PRECISION * sufficient):
        middle = (insufficient + sufficient) // 2 if is_integer else (insufficient + sufficient) / 2
        if checker.find_routes(change(middle)) is not None:
            sufficient = middle
        elif checker.left > 0:
            insufficient = middle
        else:
            break  # out of time: the change suffices, but may not be the smallest
    return sufficient if is_integer else _rounded(sufficient, change, checker)


def _rounded(
    sufficient: float, change: Callable[[float], RoutingProblem], checker: FeasibilityChecker
) -> float:
    """A change with few digits that suffices as well."""
    for digits in (1, 2, 3):
        short = float(f"{sufficient:.{digits}g}")
        close = abs(short - sufficient) <= PRECISION * sufficient
        if close and (short >= sufficient or checker.find_routes(change(short)) is not None):
            return short
    place = 10.0 ** (2 - math.floor(math.log10(sufficient)))
    return math.ceil(sufficient * place) / place


def _is_whole(*values: object) -> bool:
    numbers = [np.asarray(value, dtype=np.float64) for value in values if value is not None]
    return all((number == np.rint(number)).all() for number in numbers)
