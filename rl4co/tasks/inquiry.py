"""The search for the reason why an instance has no solution, beside the solver that looks for one.

A time limit is for everything, and a solver without a solution uses all of it. So the search runs
in a thread of its own, with its own worker processes. It begins when a solver has failed, or soon
after the solver has begun, and tells that one to stop as soon as there is a proof.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from contextvars import copy_context
from types import TracebackType

from rl4co.core.errors import RL4COError
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.solvers._conflict import Conflict, find_conflict, reduce_conflict
from rl4co.solvers._feasibility import Judge
from rl4co.solvers._parallel import Crew
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers._watch import heeding
from rl4co.tasks.relaxations import find_relaxations, more_vehicles

#: Seconds that a solver has for itself: most solutions are found by then.
HEAD_START = 0.5
#: Seconds of the search where there is no limit.
DEFAULT_SECONDS = 10.0
#: Seconds beyond its time after which nobody waits for the search.
GRACE = 1.0


@dataclasses.dataclass
class Findings:
    """What is known about an instance, growing as it is found out.

    Attributes:
        has_routes: Whether routes were found, with the vehicles that there are.
        conflict: What cannot hold together; None: there is no proof.
        remedies: What would give a solution, in words.
        is_complete: Whether there was time for everything.
    """

    has_routes: bool = False
    conflict: Conflict | None = None
    remedies: list[str] = dataclasses.field(default_factory=list)
    is_complete: bool = False


class Inquiry:
    """Looks for the reason while a block runs, and for as long as somebody waits for it.

        with Inquiry(instance, problem, limit=5.0) as inquiry, heeding(inquiry.impossible):
            ...  # a solver, which is stopped as soon as there is a proof
        inquiry.wait().conflict

    Args:
        instance: The instance.
        problem: The same as solvers see it.
        limit: Seconds for the block and the search together; None: no limit for the block.

    Attributes:
        impossible: Set as soon as it is proven that there is no solution.
    """

    def __init__(
        self, instance: BenchmarkInstance, problem: RoutingProblem, limit: float | None
    ) -> None:
        self.instance, self.problem = instance, problem
        self.impossible = threading.Event()
        self._deadline = None if limit is None else time.perf_counter() + limit
        self._head_start = HEAD_START if limit is None else min(HEAD_START, limit / 4)
        self._wanted, self._over = threading.Event(), threading.Event()
        self._findings = Findings()
        # An interrupt stops the search, too: it is in the context.
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), daemon=True)

    def wait(self) -> Findings:
        """What is known when the search ends, or its time."""
        self._wanted.set()
        self._thread.join(self._left + GRACE)
        self._over.set()
        return dataclasses.replace(self._findings, remedies=[*self._findings.remedies])

    @property
    def _left(self) -> float:
        """Seconds that are left for the search."""
        if self._deadline is None:
            return DEFAULT_SECONDS
        return max(self._deadline - time.perf_counter(), 0.0)

    def _run(self) -> None:
        self._wanted.wait(self._head_start)
        if self._over.is_set():
            return
        try:
            with heeding(self._over), Crew() as crew:
                self._search(Judge(crew, self._left), crew)
        except RL4COError:
            return  # a worker that was ended, or has crashed: what is known is known

    def _search(self, judge: Judge, crew: Crew) -> None:
        found, problem = self._findings, self.problem
        bounds = Judge(None, judge.left / 2)  # what they exclude is known at once
        found.conflict = find_conflict(problem, bounds)
        if found.conflict is None:
            routes, impossible = judge.settle(problem)
            found.has_routes = routes is not None
            found.conflict = reduce_conflict(problem, bounds) if impossible else None
        if found.conflict is not None:
            self.impossible.set()
        if not found.has_routes:
            # In half of the time: to make a conflict small may take all that there is.
            found.remedies += more_vehicles(problem, Judge(crew, judge.left / 2))
        if found.conflict is not None:
            found.conflict = reduce_conflict(found.conflict.restrict(problem), judge)
            for remedy in find_relaxations(self.instance, problem, found.conflict, judge):
                found.remedies.append(remedy)
        found.is_complete = judge.left > 0

    def __enter__(self) -> Inquiry:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._wanted.set()
