"""Runs one job per instance in worker processes, with a progress bar."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar, copy_context
from types import TracebackType
from typing import Any

from rl4co.core.errors import RL4COError
from rl4co.solvers._account import Account
from rl4co.solvers._watch import is_stopped, report_cut
from rl4co.solvers._workers import GRACE, Outcome, Worker


class Crew:
    """Workers that stay between calls of :func:`map_instances`, and accounts of their jobs.

        with Crew() as crew:
            with crew.at_work() as accounts:
                env.solve(instances, solver="pyvrp")  # one account for each instance

    Starting a worker takes a fraction of a second, which matters where instances are solved one by
    one. Several threads may share a crew; each is told about its own jobs.
    """

    def __init__(self) -> None:
        self._idle: dict[str, list[Worker]] = {}
        self._busy: set[Worker] = set()
        self._lock = threading.Lock()
        self._is_dismissed = False

    def hire(self, target: str) -> Worker:
        """A worker for a target: one that is idle, or else a new one."""
        with self._lock:
            if self._is_dismissed:  # otherwise a thread that was about to begin would go on alone
                raise RL4COError(
                    f"expected a crew at work for {target}, got one that was dismissed"
                )
            idle = self._idle.get(target)
            worker = idle.pop() if idle else Worker(target)
            self._busy.add(worker)
        return worker

    def release(self, worker: Worker) -> None:
        """Takes a worker back; one that has ended serves nobody any more."""
        with self._lock:
            self._busy.discard(worker)
            if worker.is_alive:
                self._idle.setdefault(worker.target, []).append(worker)
                return
        worker.__exit__(None, None, None)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[list[Account]]:
        """Solvers called by this thread use the crew; gives their accounts in the order of jobs."""
        accounts: list[Account] = []
        token = _SHIFT.set((self, accounts))
        try:
            yield accounts
        finally:
            _SHIFT.reset(token)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all workers; after an error, those that are busy in other threads as well."""
        with self._lock:
            self._is_dismissed = True
            for worker in (*self._busy, *(w for idle in self._idle.values() for w in idle)):
                worker.__exit__(kind, error, trace)
            self._busy.clear()
            self._idle.clear()


_SHIFT: ContextVar[tuple[Crew, list[Account]] | None] = ContextVar("shift", default=None)


def map_instances(
    target: str,
    jobs: Sequence[Sequence[Any]],
    num_procs: int = 1,
    *,
    description: str = "Solving",
    progress: bool | None = None,
    max_runtime: float | Sequence[float] | None = None,
    grace: float = GRACE,
) -> list[Any]:
    """Results of `target(*job)` for all jobs, in their order.

    Args:
        target: The function as `package.module:function`.
        jobs: Arguments of each call; they and the results must be picklable.
        num_procs: Number of processes.
        description: Text beside the progress bar.
        progress: Whether to show it; None: if stderr is a terminal and no :class:`Crew` is at work,
            whose owner has a bar of its own.
        max_runtime: Seconds per job (or of each one) after which it is killed; None: no limit.
        grace: Seconds that it may take longer to come to an end by itself.

    Returns:
        The results. Of a job that was killed, the best one that it has published, or None; so it is
        with all jobs as soon as somebody wants a stop (:mod:`rl4co.solvers._watch`).
    """
    from rich.console import Console
    from rich.progress import Progress

    shift = _SHIFT.get()
    show = sys.stderr.isatty() and shift is None if progress is None else progress
    limits = max_runtime if isinstance(max_runtime, Sequence) else [max_runtime] * len(jobs)
    outcomes = [Outcome(None, Account(), is_cut=True)] * len(jobs)
    with _Team(target, min(num_procs, len(jobs)), shift[0] if shift else None) as team:

        def call(index: int) -> Outcome:
            return team.run(jobs[index], limits[index], grace)

        with (
            ThreadPoolExecutor(max(team.size, 1)) as threads,
            Progress(console=Console(stderr=True), disable=not show) as bar,
        ):
            task = bar.add_task(description, total=len(jobs))
            pending = {
                threads.submit(copy_context().run, call, index): index for index in range(len(jobs))
            }
            try:
                for future in as_completed(pending):
                    outcomes[pending[future]] = future.result()
                    bar.advance(task)
            except BaseException as error:
                # Without this the other jobs would be finished first.
                threads.shutdown(wait=False, cancel_futures=True)
                team.dismiss(error)
                raise
    if shift is not None:
        shift[1].extend(outcome.account for outcome in outcomes)
    if not is_stopped() and any(o.is_cut and o.result is not None for o in outcomes):
        report_cut(f"{description} did not end in time; this is its best solution so far")
    return [outcome.result for outcome in outcomes]


class _Team:
    """The workers of one call; those that had to be killed are replaced.

    Args:
        target: Their function.
        size: How many work at the same time.
        crew: Where they come from and go back to; None: they are there for this call only.
    """

    def __init__(self, target: str, size: int, crew: Crew | None) -> None:
        self.target, self.size, self.crew = target, size, crew
        self._workers: list[Worker] = []
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()

    def run(self, job: Sequence[Any], max_runtime: float | None, grace: float) -> Outcome:
        """What comes of a job, as soon as a worker is free; nothing if it need not begin."""
        worker = self._idle.get()
        try:
            if is_stopped():
                return Outcome(None, Account(), is_cut=True)
            if not worker.is_alive:
                self._workers.remove(worker)
                self._give_back(worker)
                worker = self._hire()
            return worker.run(job, max_runtime, is_stopped, grace)
        finally:
            self._idle.put(worker)

    def dismiss(self, error: BaseException) -> None:
        """Ends all workers at once."""
        while self._workers:
            self._workers.pop().__exit__(type(error), error, None)

    def _hire(self) -> Worker:
        worker = Worker(self.target) if self.crew is None else self.crew.hire(self.target)
        self._workers.append(worker)
        return worker

    def _give_back(self, worker: Worker) -> None:
        if self.crew is None:
            worker.__exit__(None, None, None)
        else:
            self.crew.release(worker)

    def __enter__(self) -> _Team:
        for _ in range(self.size):
            self._idle.put(self._hire())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Lets all workers go that are left."""
        while self._workers:
            self._give_back(self._workers.pop())
