"""Explains why an instance has no solution, and which changes would allow one.

Every customer alone can be served (:mod:`rl4co.data.formats.possible` rejects other instances), so
the number of vehicles is in conflict with other constraints: the capacity, time windows, the
longest route. There are four steps, within the time limit and beside the solver
(:mod:`rl4co.tasks.infeasibility.analysis`):

1. the smallest number of vehicles that suffices;
2. a minimal *conflict*, see :mod:`rl4co.solvers._feasibility.conflict`;
3. *relaxations*: the smallest change of each constraint in the conflict that allows a solution,
   each of them solved (:mod:`rl4co.tasks.infeasibility.relaxations`);
4. a message with the names and units of the file.
"""

from __future__ import annotations

import contextlib

from collections.abc import Iterator, Sequence

from rl4co.core.errors import NoSolutionError, StoppedError
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.core.registry import SOLVERS
from rl4co.data.formats import Benchmark
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._cancellation import cancelled_by, is_cancelled
from rl4co.solvers._feasibility.checker import needs_more_vehicles
from rl4co.solvers._feasibility.conflict import CAPACITY, HOURS, LENGTH, WINDOWS, Conflict
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers._routing import limit_fleet
from rl4co.solvers.formulations import RoutingFormulation, formulation_of, instances_of
from rl4co.tasks.approaches import Answer, environment_of
from rl4co.tasks.infeasibility.analysis import AnalysisResult, InfeasibilityAnalysis

#: Customers that a message names.
MOST_NAMED = 6
#: What to do if the solver may only have been too slow.
MORE_TIME = "raise --max-runtime"
#: If the analysis was cut short.
NO_TIME = "no time left to look for the reason"


class TooManyVehiclesError(NoSolutionError):
    """A solution by a method that cannot limit the number of vehicles.

    Args:
        answer: The answer.
    """

    def __init__(self, answer: Answer) -> None:
        self.got = f"{len(answer.solution)} by {answer.solver}"
        super().__init__(f"expected fewer vehicles, got {self.got}")


def accept(instance: Benchmark, answer: Answer) -> Answer:
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
def explained(instance: Benchmark, limit: float | None) -> Iterator[None]:
    """If the block finds no solution because there are too few vehicles, the error explains why.

    Args:
        instance: The instance that the block solves.
        limit: Seconds for the block and the analysis together; None: no limit.
    """
    if not isinstance(instance, BenchmarkInstance) or not instance.solver_options:
        yield
        return
    if instance.num_nodes > MAX_DENSE_NODES:
        try:
            yield
        except NoSolutionError as error:
            got = getattr(error, "got", "none")
            raise _no_solution(instance, f"{got}; allow more (--vehicles)") from error
        return
    problem = formulate(instance)
    with InfeasibilityAnalysis(instance, problem, limit) as analysis:
        if needs_more_vehicles(problem):  # no solver can find a solution
            raise explain(instance, analysis.wait(), "none", MORE_TIME)
        try:
            with cancelled_by(analysis.infeasible):
                yield
        except TooManyVehiclesError as error:
            raise explain(instance, analysis.wait(), error.got, _advice(instance)) from error
        except NoSolutionError as error:
            raise explain(instance, analysis.wait(), "none", MORE_TIME) from error
        except StoppedError as error:
            if not analysis.infeasible.is_set():
                raise
            raise explain(instance, analysis.wait(), "none", MORE_TIME) from error


def explain(
    instance: BenchmarkInstance, result: AnalysisResult, got: str, advice: str
) -> NoSolutionError:
    """The error that explains why there is no solution, and what would help.

    Args:
        instance: The instance.
        result: Results of its analysis.
        got: How many vehicles a solution has instead, and whose it is.
        advice: What to do if there is a solution, or may be one.
    """
    if result.has_routes:
        return _no_solution(instance, f"{got}; there are some: {advice}")
    # Each remedy has been solved.
    remedy = "allow more (--vehicles)"
    if result.remedies:
        remedy = f"there are some {_join(result.remedies, 'or')}"
    if result.conflict is not None:
        smaller = "" if result.conflict.is_minimal else f"; {_not_minimal(result)}"
        reason = f"a proof that there are none: {_reason(instance, result.conflict)}{smaller}"
        return _no_solution(instance, f"{reason}; {remedy}")
    if is_cancelled():
        return _no_solution(instance, f"{got}, and an interrupt before it was known why; {remedy}")
    unknown = "no proof that there are none" if result.is_complete else NO_TIME
    return _no_solution(instance, f"{got}, and {unknown}; {advice}; {remedy}")


def _no_solution(instance: BenchmarkInstance, got: str) -> NoSolutionError:
    assert instance.vehicles is not None
    source = instance.source or instance.name
    return NoSolutionError(
        f"{source}: expected routes of at most {_count(instance.vehicles)}, got {got}"
    )


def formulate(instance: BenchmarkInstance) -> RoutingProblem:
    """The formulation for solvers, in the units of the instance."""
    assert instance.vehicles is not None
    env = environment_of(instance)
    state = env.reset(instance.to_tensordict(normalize=False))
    (values,) = instances_of(state)
    problem = formulation_of(env, RoutingFormulation).formulate(env, values)
    return limit_fleet(problem, instance.vehicles)


# ---------------------------------------------------------------- messages


def _reason(instance: BenchmarkInstance, conflict: Conflict) -> str:
    """Which customers cannot be served, by how many vehicles, within which limits."""
    named = [_describe(instance, node, conflict) for node in conflict.customers[:MOST_NAMED]]
    more = len(conflict.customers) - len(named)
    customers = f"{', '.join(named)} and {more} more" if more else _join(named)
    if more and len(conflict.customers) == instance.num_nodes - 1:
        customers = f"the {len(conflict.customers)} customers"
    assert instance.vehicles is not None
    limits = _join([_limit(instance, kind) for kind in conflict.kinds])
    total = ""
    if CAPACITY in conflict.kinds and instance.demand is not None:
        demand = float(instance.demand[list(conflict.customers)].sum())
        total = f", with a total demand of {demand:.10g},"
    return f"{customers}{total} cannot all be served by {_count(instance.vehicles)} within {limits}"


def _not_minimal(result: AnalysisResult) -> str:
    """That there may be a smaller conflict."""
    no_time = "" if result.is_complete else f", for which no time was left ({MORE_TIME})"
    return f"there may be a smaller reason{no_time}"


def _describe(instance: BenchmarkInstance, node: int, conflict: Conflict) -> str:
    facts = []
    if CAPACITY in conflict.kinds and instance.demand is not None:
        facts.append(f"demand {instance.demand[node]:.10g}")
    if WINDOWS in conflict.kinds and instance.time_windows is not None:
        opening, closing = instance.time_windows[node]
        facts.append(f"{opening:.10g} to {closing:.10g}")
    return f"{instance.name_of(node)} ({', '.join(facts)})" if facts else instance.name_of(node)


def _limit(instance: BenchmarkInstance, kind: str) -> str:
    """A constraint with its number."""
    if kind == CAPACITY:
        return f"a capacity of {instance.capacity:.10g}"
    if kind == LENGTH:
        return f"a max_length of {instance.max_length:.10g}"
    if kind == HOURS and instance.time_windows is not None:
        return f"the depot's hours, to {instance.time_windows[0, 1]:.10g}"
    return "their time windows" if kind == WINDOWS else kind


def _advice(instance: BenchmarkInstance) -> str:
    """Which solvers can limit the number of vehicles."""
    env = environment_of(instance)
    preferred = formulation_of(env, RoutingFormulation).solvers
    capable = [name for name in preferred if "max_vehicles" in SOLVERS[name].options]
    return f"use --solver {_join(capable, 'or')}, which can limit vehicles"


def _count(vehicles: int) -> str:
    return f"{vehicles} vehicle{'s' if vehicles > 1 else ''}"


def _join(parts: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
