"""Worker processes that stay between calls; `map_instances` runs one job per instance in them."""

from __future__ import annotations

import contextlib
import threading

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from rl4co.core.errors import RL4COError
from rl4co.solvers._batch import REPORTS, Advance, run_batch
from rl4co.solvers._cancellation import (
    is_cancelled,
    report_cost,
    report_cut,
    report_incumbent,
)
from rl4co.solvers._job_report import JobReport
from rl4co.solvers._worker_process import GRACE, JobResult, WorkerProcess


class WorkerPool:
    """Worker processes that stay between calls of :func:`map_instances`, and reports of their jobs.

        with WorkerPool() as pool:
            with pool.running() as reports:
                env.solve(instances, solver="pyvrp")  # one report for each instance

    Starting a worker takes a fraction of a second, which matters where instances are solved one by
    one. Several threads may share a pool; each gets the reports of its own jobs.
    """

    def __init__(self) -> None:
        self._idle: dict[str, list[WorkerProcess]] = {}
        self._busy: set[WorkerProcess] = set()
        self._lock = threading.Lock()
        self._is_shut_down = False

    @contextlib.contextmanager
    def worker(self, target: str) -> Iterator[WorkerProcess]:
        """A worker for a target during the block: an idle one, or else a new one."""
        with self._lock:
            if self._is_shut_down:  # by another thread
                raise RL4COError(f"expected a running pool for {target}, got one that is shut down")
            idle = self._idle.get(target)
            worker = idle.pop() if idle else WorkerProcess(target)
            self._busy.add(worker)
        try:
            yield worker
        finally:
            with self._lock:
                self._busy.discard(worker)
                is_reusable = worker.is_alive and not self._is_shut_down
                if is_reusable:
                    self._idle.setdefault(target, []).append(worker)
            if not is_reusable:
                worker.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[list[JobReport]]:
        """Solvers called by this thread use the pool; yields their reports in the order of jobs."""
        reports: list[JobReport] = []
        pool_token, reports_token = _POOL.set(self), REPORTS.set(reports)
        try:
            yield reports
        finally:
            _POOL.reset(pool_token)
            REPORTS.reset(reports_token)

    def shutdown(self, kill: bool = False) -> None:
        """Ends all workers.

        Args:
            kill: Whether to kill those that are busy in other threads.
        """
        with self._lock:
            self._is_shut_down = True
            for worker in (*self._busy, *(w for idle in self._idle.values() for w in idle)):
                worker.close(kill)
            self._busy.clear()
            self._idle.clear()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all workers; after an error, busy ones are killed."""
        self.shutdown(kill=kind is not None)


_POOL: ContextVar[WorkerPool | None] = ContextVar("pool", default=None)


def map_instances(
    target: str,
    jobs: Sequence[Sequence[Any]],
    num_procs: int = 1,
    *,
    description: str = "Solving",
    progress: bool | None = None,
    max_runtime: float | Sequence[float] | None = None,
    grace: float = GRACE,
    to_actions: Callable[[Any], Any] | None = None,
) -> list[Any]:
    """Results of `target(*job)` for all jobs, in their order.

    Args:
        target: The function as `package.module:function`.
        jobs: Arguments of each call; they and the results must be picklable.
        num_procs: Number of processes.
        description: Text beside the progress bar.
        progress: Whether to show it; None: if stderr is a terminal and no :class:`WorkerPool` is
            running, whose owner has its own bar.
        max_runtime: Seconds per job (or of each one) after which it is killed; None: no limit.
        grace: Seconds that a job may exceed its limit before it is killed.
        to_actions: Converts an incumbent to actions `[1, T]`, which are reported as soon as a
            single job finds it; None: incumbents are not reported.

    Returns:
        The results. For a job that was killed or cancelled (:mod:`rl4co.solvers._cancellation`),
        its last incumbent or None.
    """

    def report(kind: str, content: Any) -> None:
        if kind == "cost":
            report_cost(content)
        elif to_actions is not None and len(jobs) == 1:
            report_incumbent(lambda: to_actions(content))

    limits = max_runtime if isinstance(max_runtime, Sequence) else [max_runtime] * len(jobs)

    def run(
        job: tuple[Sequence[Any], float | None], advance: Advance
    ) -> tuple[JobResult, JobReport]:
        arguments, limit = job
        result = JobResult(None, JobReport(), is_cut=True)
        if not is_cancelled():
            with pool.worker(target) as worker:
                result = worker.run(arguments, limit, is_cancelled, grace, report)
        advance(1.0, None)
        return result, result.report

    shared = _POOL.get()
    with WorkerPool() if shared is None else contextlib.nullcontext(shared) as pool:
        results = run_batch(
            run,
            list(zip(jobs, limits, strict=True)),
            num_procs,
            description=description,
            progress=progress,
        )
    if not is_cancelled() and any(r.is_cut and r.value is not None for r in results):
        report_cut(f"{description} did not end in time; this is its best solution so far")
    return [result.value for result in results]
