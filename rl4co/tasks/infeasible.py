"""Why an instance has no solution, and what would give it one.

Every customer alone can be served (:mod:`rl4co.data.formats.possible` has refused others), so it is
the number of vehicles that cannot hold together with something else: the capacity, time windows,
the longest route. Four steps, within a time limit:

1. the least number of vehicles that suffices;
2. the *conflict*: a minimal set of constraints that provably cannot hold together, see
   :mod:`rl4co.solvers._conflict`;
3. other *relaxations*: the least change of each constraint in the conflict with which all customers
   can be served, each of them solved;
4. all of it in words, with the names and units of the file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from rl4co.core.errors import NoSolutionError
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.core.registry import SOLVERS
from rl4co.data.formats import Published
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._conflict import (
    CAPACITY,
    HOURS,
    LENGTH,
    WINDOWS,
    Conflict,
    find_conflict,
    latest_end,
)
from rl4co.solvers._feasibility import Judge, needs_more_vehicles, with_vehicle
from rl4co.solvers._parallel import Crew
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers._routing import limit_fleet
from rl4co.solvers._watch import is_stopped
from rl4co.solvers.formulations import RoutingFormulation, formulation_of, instances_of
from rl4co.tasks.approaches import Answer, Approach, BySolver, environment_of

#: Seconds for an explanation: as many as the solver had, within these limits.
MIN_SECONDS, MAX_SECONDS = 3.0, 10.0
#: Customers that a message names, and time windows of which the least change is looked for.
MOST_NAMED, MOST_WIDENED = 6, 6
#: To which relative precision the least change is looked for.
PRECISION = 0.01
#: What to do where a solver may only have been too slow.
MORE_TIME = "raise --max-runtime"


class TooManyVehiclesError(NoSolutionError):
    """An answer of something that cannot limit vehicles.

    Args:
        answer: The answer.
    """

    def __init__(self, answer: Answer) -> None:
        self.got = f"{len(answer.solution)} by {answer.solver}"
        super().__init__(f"expected fewer vehicles, got {self.got}")


def accept(instance: Published, answer: Answer) -> Answer:
    """The answer if it is valid.

    Raises:
        TooManyVehiclesError: It has more routes than there are vehicles.
        InvalidSolutionError: It breaks another constraint.
    """
    limit = instance.solver_options.get("max_vehicles")
    if limit is not None and len(answer.solution) > limit:
        raise TooManyVehiclesError(answer)
    instance.check(answer.solution)
    return answer


@contextlib.contextmanager
def explained(instance: Published, approach: Approach) -> Iterator[None]:
    """If the approach finds no solution inside, as vehicles are too few, the error says why."""
    if not isinstance(instance, BenchmarkInstance) or not instance.solver_options:
        yield
        return
    seconds = approach.max_runtime if isinstance(approach, BySolver) else MAX_SECONDS
    seconds = min(max(seconds, MIN_SECONDS), MAX_SECONDS)
    if instance.num_nodes <= MAX_DENSE_NODES and needs_more_vehicles(_formulate(instance)):
        raise explain(instance, "none", MORE_TIME, seconds)  # at once: no solver finds any
    try:
        yield
    except TooManyVehiclesError as error:
        raise explain(instance, error.got, _advice(instance), seconds) from error
    except NoSolutionError as error:
        raise explain(instance, "none", MORE_TIME, seconds) from error


def explain(instance: BenchmarkInstance, got: str, advice: str, seconds: float) -> NoSolutionError:
    """The error that says why there is no solution with so few vehicles, and what would help.

    Args:
        instance: What could not be solved.
        got: How many vehicles there are instead, and whose.
        advice: What to do if there is a solution, or may be.
        seconds: How long to look for the reason.
    """
    assert instance.vehicles is not None
    expected = (
        f"{instance.source or instance.name}: expected routes of at most "
        f"{_count(instance.vehicles)}"
    )
    if instance.num_nodes > MAX_DENSE_NODES:
        return NoSolutionError(f"{expected}, got {got}; allow more (--vehicles)")
    problem = _formulate(instance)
    with Crew() as crew:
        judge = Judge(crew, seconds)
        if judge.find_routes(problem) is not None:
            return NoSolutionError(f"{expected}, got {got}; there are some: {advice}")
        # First, and in half of the time: to make a conflict minimal may take all that there is.
        helpful = [*_more_vehicles(problem, Judge(crew, judge.left / 2))]
        conflict = find_conflict(problem, judge)
        if conflict is not None:
            helpful += find_relaxations(instance, problem, conflict, judge)
    # Each of them has been solved.
    remedy = f"there are some {_join(helpful, 'or')}" if helpful else "allow more (--vehicles)"
    if conflict is None and is_stopped():
        got = f"{got}, and an interrupt before it was known why"
    elif conflict is None:
        got, remedy = f"{got}, and no proof that there are none", f"{advice}; {remedy}"
    else:
        got = f"a proof that there are none: {_reason(instance, conflict)}"
    return NoSolutionError(f"{expected}, got {got}; {remedy}")


def _formulate(instance: BenchmarkInstance) -> RoutingProblem:
    """The problem that solvers get, in the units of the instance."""
    assert instance.vehicles is not None
    env = environment_of(instance)
    state = env.reset(instance.to_tensordict(normalize=False))
    (values,) = instances_of(state)
    problem = formulation_of(env, RoutingFormulation).formulate(env, values)
    return limit_fleet(problem, instance.vehicles)


# ---------------------------------------------------------------- relaxations


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


def _more_vehicles(problem: RoutingProblem, judge: Judge) -> Iterator[str]:
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


# ---------------------------------------------------------------- words


def _reason(instance: BenchmarkInstance, conflict: Conflict) -> str:
    """Who cannot be served, by how many vehicles, within which limits."""
    named = [_describe(instance, node, conflict) for node in conflict.customers[:MOST_NAMED]]
    more = len(conflict.customers) - len(named)
    people = f"{', '.join(named)} and {more} more" if more else _join(named)
    if more and len(conflict.customers) == instance.num_nodes - 1:
        people = f"the {len(conflict.customers)} customers"
    assert instance.vehicles is not None
    limits = _join([_limit(instance, kind) for kind in conflict.kinds])
    total = ""
    if CAPACITY in conflict.kinds and instance.demand is not None:
        demand = float(instance.demand[list(conflict.customers)].sum())
        total = f", with a total demand of {demand:.10g},"
    return f"{people}{total} cannot all be served by {_count(instance.vehicles)} within {limits}"


def _describe(instance: BenchmarkInstance, node: int, conflict: Conflict) -> str:
    facts = []
    if CAPACITY in conflict.kinds and instance.demand is not None:
        facts.append(f"demand {instance.demand[node]:.10g}")
    if WINDOWS in conflict.kinds and instance.time_windows is not None:
        opening, closing = instance.time_windows[node]
        facts.append(f"{opening:.10g} to {closing:.10g}")
    return f"{instance.name_of(node)} ({', '.join(facts)})" if facts else instance.name_of(node)


def _limit(instance: BenchmarkInstance, kind: str) -> str:
    """A kind of constraint with its number."""
    if kind == CAPACITY:
        return f"a capacity of {instance.capacity:.10g}"
    if kind == LENGTH:
        return f"a max_length of {instance.max_length:.10g}"
    if kind == HOURS and instance.time_windows is not None:
        return f"the depot's hours, to {instance.time_windows[0, 1]:.10g}"
    return "their time windows" if kind == WINDOWS else kind


def _advice(instance: BenchmarkInstance) -> str:
    """Which solvers hold the number of vehicles."""
    env = environment_of(instance)
    preferred = formulation_of(env, RoutingFormulation).solvers
    holding = [name for name in preferred if "max_vehicles" in SOLVERS[name].options]
    return f"use --solver {_join(holding, 'or')}, which can limit vehicles"


def _count(vehicles: int) -> str:
    return f"{vehicles} vehicle{'s' if vehicles > 1 else ''}"


def _join(parts: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
