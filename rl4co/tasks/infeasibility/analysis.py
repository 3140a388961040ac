"""The analysis of an infeasible instance, which runs beside the solver.

The time limit covers both, and a solver that finds no solution uses all of it. So the analysis runs
in a separate thread with separate worker processes. It starts when the solver has failed, or soon
after the solver has started, and cancels the solver as soon as infeasibility is proven.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from contextvars import copy_context
from types import TracebackType

from rl4co.core.errors import RL4COError
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._cancellation import cancelled_by
from rl4co.solvers._feasibility.checker import FeasibilityChecker
from rl4co.solvers._feasibility.conflict import Conflict, find_conflict, reduce_conflict
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.infeasibility.relaxations import find_relaxations, more_vehicles

#: Seconds that a solver runs alone; most find a solution by then.
HEAD_START = 0.5
#: Seconds of the analysis if there is no limit.
DEFAULT_SECONDS = 10.0
#: Seconds beyond its time for which the caller waits for the analysis.
GRACE = 1.0


@dataclasses.dataclass
class AnalysisResult:
    """Results of the analysis of an instance, which grow while it runs.

    Attributes:
        has_routes: Whether routes were found with the available vehicles.
        conflict: Constraints that cannot be satisfied together; None: infeasibility is not proven.
        remedies: Changes that allow a solution, in words.
        is_complete: Whether there was time for everything.
    """

    has_routes: bool = False
    conflict: Conflict | None = None
    remedies: list[str] = dataclasses.field(default_factory=list)
    is_complete: bool = False


class InfeasibilityAnalysis:
    """Analyses an instance while a block runs, and until :meth:`wait` returns.

        with InfeasibilityAnalysis(instance, problem, limit=5.0) as analysis:
            with cancelled_by(analysis.infeasible):
                ...  # a solver, which is cancelled as soon as there is a proof
            analysis.wait().conflict

    Args:
        instance: The instance.
        problem: Its formulation for solvers.
        limit: Seconds for the block and the analysis together; None: no limit for the block.

    Attributes:
        infeasible: Set as soon as it is proven that there is no solution.
    """

    def __init__(
        self, instance: BenchmarkInstance, problem: RoutingProblem, limit: float | None
    ) -> None:
        self.instance, self.problem = instance, problem
        self.infeasible = threading.Event()
        self._deadline = None if limit is None else time.perf_counter() + limit
        self._head_start = HEAD_START if limit is None else min(HEAD_START, limit / 4)
        self._requested, self._ended = threading.Event(), threading.Event()
        self._result = AnalysisResult()
        # The context has the cancel token, so an interrupt cancels the analysis as well.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)

    def wait(self) -> AnalysisResult:
        """The results at the end of the analysis or of its time."""
        self._requested.set()
        self._thread.join(self._left + GRACE)
        self._ended.set()
        return dataclasses.replace(self._result, remedies=[*self._result.remedies])

    @property
    def _left(self) -> float:
        """Seconds that are left for the analysis."""
        if self._deadline is None:
            return DEFAULT_SECONDS
        return max(self._deadline - time.perf_counter(), 0.0)

    def _run(self) -> None:
        self._requested.wait(self._head_start)
        if self._ended.is_set():
            return
        try:
            with cancelled_by(self._ended), WorkerPool() as pool:
                self._analyse(FeasibilityChecker(pool, self._left), pool)
        except RL4COError:
            return  # a worker has ended or crashed: the results so far stay

    def _analyse(self, checker: FeasibilityChecker, pool: WorkerPool) -> None:
        result, problem = self._result, self.problem
        bounds = FeasibilityChecker(None, checker.left / 2)  # bounds only, which take no time
        result.conflict = find_conflict(problem, bounds)
        if result.conflict is None:
            routes, infeasible = checker.check(problem)
            result.has_routes = routes is not None
            result.conflict = reduce_conflict(problem, bounds) if infeasible else None
        if result.conflict is not None:
            self.infeasible.set()
        if not result.has_routes:
            # In half of the time: the reduction of a conflict may take all of it.
            result.remedies += more_vehicles(problem, FeasibilityChecker(pool, checker.left / 2))
        if result.conflict is not None:
            result.conflict = reduce_conflict(result.conflict.restrict(problem), checker)
            for remedy in find_relaxations(self.instance, problem, result.conflict, checker):
                result.remedies.append(remedy)
        result.is_complete = checker.left > 0

    def __enter__(self) -> InfeasibilityAnalysis:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._requested.set()
