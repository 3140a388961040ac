"""What would give a solution to an instance that has none: the least change of each constraint.

Every change that is offered here has been solved.
"""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Callable, Iterator

import numpy as np

from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._conflict import CAPACITY, HOURS, LENGTH, WINDOWS, Conflict, latest_end
from rl4co.solvers._feasibility import Judge, with_vehicle
from rl4co.solvers._problem import RoutingProblem

#: Time windows of which the least change is looked for.
MOST_WIDENED = 6
#: To which relative precision the least change is looked for.
PRECISION = 0.01


def find_relaxations(
    instance: BenchmarkInstance, problem: RoutingProblem, conflict: Conflict, judge: Judge
) -> Iterator[str]:
    """What but vehicles would give a solution, in words; each is the least change of its kind.

    Args:
        instance: Where the problem comes from.
        problem: The problem.
        conflict: What cannot hold together.
        judge: Solves relaxed problems.
    """
    if CAPACITY in conflict.kinds:
        yield from _more_capacity(instance, problem, judge)
    if {WINDOWS, HOURS} & set(conflict.kinds):
        yield from _wider_window(instance, problem, conflict, judge)
    if LENGTH in conflict.kinds:
        yield from _longer_routes(instance, problem, judge)
    yield from _fewer_customers(instance, problem, conflict, judge)


def more_vehicles(problem: RoutingProblem, judge: Judge) -> Iterator[str]:
    """How many vehicles are enough, in words; the fewest if there is time to find out."""
    count = problem.vehicles[0].count
    enough = judge.find_routes(with_vehicle(problem, count=len(problem.customers)))
    if enough is None:
        return
    more = _least(
        lambda extra: with_vehicle(problem, count=count + int(extra)),
        len(enough) - count,
        judge,
        whole=True,
    )
    needed = len(enough) if more is None else count + int(more)
    yield f"with {needed} vehicles (--vehicles {needed})"


def _more_capacity(
    instance: BenchmarkInstance, problem: RoutingProblem, judge: Judge
) -> Iterator[str]:
    capacity = problem.vehicles[0].capacity
    loads = [load for load in (problem.delivery, problem.pickup) if load is not None]
    more = _least(
        lambda extra: with_vehicle(problem, capacity=capacity + extra),
        max(float(load.sum()) for load in loads) - capacity,
        judge,
        whole=_is_whole(capacity, *loads),
    )
    if more is not None and instance.capacity is not None:
        yield f"with a capacity of {instance.capacity + more:.10g} ({more:.10g} more)"


def _wider_window(
    instance: BenchmarkInstance, problem: RoutingProblem, conflict: Conflict, judge: Judge
) -> Iterator[str]:
    """The one window, or the depot's, that has to end least later; if one is not enough, all."""
    windows, stated = problem.windows, instance.time_windows
    assert windows is not None and stated is not None and problem.duration is not None
    whole = _is_whole(stated, problem.duration, problem.service)

    def later(node: int | slice, most: float) -> float | None:
        def change(extra: float) -> RoutingProblem:
            changed = windows.copy()
            changed[node, 1] += extra
            return dataclasses.replace(problem, windows=changed)

        return _least(change, most, judge, whole)

    closing = float(windows[0, 1])
    most: dict[int, float] = {}
    if WINDOWS in conflict.kinds:
        most |= {n: closing - float(windows[n, 1]) for n in conflict.customers[:MOST_WIDENED]}
    if HOURS in conflict.kinds:
        most[0] = latest_end(problem) - closing
    best: tuple[float, int] | None = None
    for node, limit in most.items():
        if best is not None:  # only a lesser change is of interest
            limit = min(limit, best[0] - 1.0 if whole else best[0] * (1.0 - PRECISION))
        extra = later(node, limit)
        best = best if extra is None else (extra, node)
    if best is not None:
        extra, node = best
        end = f"{stated[node, 1] + extra:.10g} ({extra:.10g} later)"
        yield f"with a time window of {instance.name_of(node)} that ends at {end}"
        return
    extra = later(slice(1, None), closing - float(windows[1:, 1].min()))
    if extra is not None:
        yield f"with all time windows of customers ending {extra:.10g} later"


def _longer_routes(
    instance: BenchmarkInstance, problem: RoutingProblem, judge: Judge
) -> Iterator[str]:
    limit = problem.vehicles[0].max_length
    more = _least(
        lambda extra: with_vehicle(problem, max_length=limit + extra),
        float(problem.length.max(1).sum()) - limit,
        judge,
        whole=_is_whole(instance.max_length, problem.length),
    )
    if more is not None and instance.max_length is not None:
        yield f"with a max_length of {instance.max_length + more:.10g} ({more:.10g} more)"


def _fewer_customers(
    instance: BenchmarkInstance, problem: RoutingProblem, conflict: Conflict, judge: Judge
) -> Iterator[str]:
    for left_out in conflict.customers:
        rest = tuple(node for node in problem.customers if node != left_out)
        if judge.find_routes(dataclasses.replace(problem, customers=rest)) is not None:
            yield f"without {instance.name_of(left_out)}"
            return


def _least(
    change: Callable[[float], RoutingProblem], most: float, judge: Judge, whole: bool
) -> float | None:
    """The least change with which a problem has a solution, None if even the largest does not help.

    Args:
        change: The problem changed by so much; more is never worse.
        most: The largest change.
        judge: Solves problems.
        whole: Whether only whole numbers matter.
    """
    failed, helped = 0.0, math.ceil(most) if whole else most
    if most <= 0 or judge.find_routes(change(helped)) is None:
        return None
    while helped - failed > (1.0 if whole else PRECISION * helped):
        middle = (failed + helped) // 2 if whole else (failed + helped) / 2
        if judge.find_routes(change(middle)) is not None:
            helped = middle
        elif judge.left > 0:
            failed = middle
        else:
            break  # out of time: what has helped is still true, if not the least
    return helped if whole else _short(helped, change, judge)


def _short(helped: float, change: Callable[[float], RoutingProblem], judge: Judge) -> float:
    """A change with few digits that helps as well."""
    for digits in (1, 2, 3):
        short = float(f"{helped:.{digits}g}")
        close = abs(short - helped) <= PRECISION * helped
        if close and (short >= helped or judge.find_routes(change(short)) is not None):
            return short
    place = 10.0 ** (2 - math.floor(math.log10(helped)))
    return math.ceil(helped * place) / place


def _is_whole(*values: object) -> bool:
    numbers = [np.asarray(value, dtype=np.float64) for value in values if value is not None]
    return all((number == np.rint(number)).all() for number in numbers)
