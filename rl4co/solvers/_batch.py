"""Runs the jobs of one batch of instances side by side, with a progress bar and reports."""

from __future__ import annotations

import sys

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar, copy_context
from typing import TypeVar

from rl4co.solvers._cancellation import cancel_on_error
from rl4co.solvers._job_report import JobReport

J = TypeVar("J")
R = TypeVar("R")

#: Advances the progress bar by a number of units, and may change its text.
Advance = Callable[[float, str | None], None]

#: Collects the reports of all jobs that the current context runs.
REPORTS: ContextVar[list[JobReport] | None] = ContextVar("reports", default=None)


def run_batch(
    run: Callable[[J, Advance], tuple[R, JobReport]],
    jobs: Sequence[J],
    num_threads: int,
    *,
    description: str,
    progress: bool | None,
    units: float = 1.0,
) -> list[R]:
    """Results of all jobs, in their order. If one fails, the others are cancelled.

    Args:
        run: Runs a job in a thread; returns its result and report.
        jobs: Jobs.
        num_threads: Jobs at the same time.
        description: Text beside the progress bar.
        progress: Whether to show it; None: if stderr is a terminal and no caller collects reports,
            as such a caller has its own bar.
        units: Length of the progress bar for each job.
    """
    from rich.console import Console
    from rich.progress import Progress

    reports = REPORTS.get()
    show = sys.stderr.isatty() and reports is None if progress is None else progress
    with (
        Progress(console=Console(stderr=True), disable=not show) as bar,
        ThreadPoolExecutor(max(1, min(num_threads, len(jobs)))) as threads,
        cancel_on_error(),
    ):
        task = bar.add_task(description, total=len(jobs) * units)

        def advance(amount: float, text: str | None = None) -> None:
            bar.update(task, advance=amount, description=text)

        futures = [threads.submit(copy_context().run, run, job, advance) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()  # raises its error
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    outcomes = [future.result() for future in futures]
    if reports is not None:
        reports.extend(report for _, report in outcomes)
    return [result for result, _ in outcomes]
