"""Runs one compiled heuristic per instance in threads of this process, with a progress bar.

Compiled loops release the GIL, so threads do; the processes of :mod:`rl4co.solvers._parallel` would
import the library and load the compiled code once more each.
"""

from __future__ import annotations

import sys
import time

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from rl4co.solvers._account import Account
from rl4co.solvers._parallel import _SHIFT
from rl4co.solvers._watch import stop_on_error

J = TypeVar("J")
R = TypeVar("R")

#: Called with the cost of a solution that is better than all before it.
Note = Callable[[float], None]


def map_in_threads(
    function: Callable[[J, Note], R],
    jobs: Sequence[J],
    num_threads: int,
    *,
    description: str,
    progress: bool | None = None,
    total: float | None = None,
) -> list[R]:
    """Results of `function(job, note)` for all jobs, in their order.

    Args:
        function: Solves one job; tells `note` about better and better costs, if it knows them, and
            asks :func:`~rl4co.solvers._watch.is_stopped` now and then.
        jobs: Jobs.
        num_threads: Jobs at the same time.
        description: Text beside the progress bar.
        progress: Whether to show it; None: if stderr is a terminal and nobody else shows one.
        total: Seconds that each job will take, for a bar that moves while a single job runs; None:
            it counts jobs.
    """
    from rich.console import Console
    from rich.progress import Progress

    shift = _SHIFT.get()
    show = sys.stderr.isatty() and shift is None if progress is None else progress
    with (
        Progress(console=Console(stderr=True), disable=not show) as bar,
        ThreadPoolExecutor(min(num_threads, max(len(jobs), 1))) as pool,
        stop_on_error(),
    ):
        task = bar.add_task(description, total=len(jobs) * (total or 1.0))

        def run(job: J) -> tuple[R, Account]:
            account, began, shown = Account(), time.perf_counter(), 0.0

            def note(cost: float) -> None:
                nonlocal shown
                seconds = time.perf_counter() - began
                if not account.incumbents or cost < account.incumbents[-1][1]:
                    account.incumbents.append((seconds, cost))
                if total is not None and seconds < total:
                    bar.update(
                        task, advance=seconds - shown, description=f"{description} {cost:.6g}"
                    )
                    shown = seconds

            result = function(job, note)
            account.seconds = time.perf_counter() - began
            bar.advance(task, (total or 1.0) - shown)
            return result, account

        pending = [pool.submit(copy_context().run, run, job) for job in jobs]
        try:
            outcomes = [future.result() for future in pending]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if shift is not None:
        shift[1].extend(account for _, account in outcomes)
    return [result for result, _ in outcomes]
