"""Runs one compiled heuristic per instance in threads of this process, with a progress bar.

Compiled loops release the GIL, so threads suffice; worker processes would import the library and
load the compiled code once more each.
"""

from __future__ import annotations

import time

from collections.abc import Callable, Sequence
from typing import TypeVar

from rl4co.solvers._batch import Advance, run_batch
from rl4co.solvers._cancellation import report_cost
from rl4co.solvers._job_report import JobReport

J = TypeVar("J")
R = TypeVar("R")

#: Called with the cost of a solution that is better than all before it.
RecordCost = Callable[[float], None]


def map_in_threads(
    function: Callable[[J, RecordCost], R],
    jobs: Sequence[J],
    num_threads: int,
    *,
    description: str,
    progress: bool | None = None,
    total: float | None = None,
) -> list[R]:
    """Results of `function(job, record_cost)` for all jobs, in their order.

    Args:
        function: Solves one job; calls `record_cost` for each improved cost that it knows, and
            checks :func:`~rl4co.solvers._cancellation.is_cancelled` regularly.
        jobs: Jobs.
        num_threads: Jobs at the same time.
        description: Text beside the progress bar.
        progress: See :func:`~rl4co.solvers._batch.run_batch`.
        total: Seconds that each job will take, for a bar that moves while a single job runs; None:
            it counts jobs.
    """
    units = total or 1.0

    def run(job: J, advance: Advance) -> tuple[R, JobReport]:
        report, started, shown = JobReport(), time.perf_counter(), 0.0

        def record_cost(cost: float) -> None:
            nonlocal shown
            seconds = time.perf_counter() - started
            if report.add(seconds, cost):
                report_cost(cost)
            if total is not None and seconds < total:
                advance(seconds - shown, f"{description} {cost:.6g}")
                shown = seconds

        result = function(job, record_cost)
        report.seconds = time.perf_counter() - started
        advance(units - shown, None)
        return result, report

    return run_batch(
        run, jobs, num_threads, description=description, progress=progress, units=units
    )
