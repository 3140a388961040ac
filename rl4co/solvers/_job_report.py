"""The report of a job in a worker process: its time, its incumbents, whether it is cancelled.

A worker process has one job at a time, so there is one report per process. Solvers that find better
solutions before they end call :func:`record_cost` and :func:`report_incumbent`; the last incumbent
is the result of a job that is killed. Solvers that can end early ask :func:`is_cancelled`.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from collections.abc import Callable
from typing import Any


@dataclasses.dataclass
class JobReport:
    """What a job reports besides its result.

    Attributes:
        seconds: Its time, without the start of the process.
        incumbents: Seconds since its start, and cost, of each solution that improved.
    """

    seconds: float = 0.0
    incumbents: list[tuple[float, float]] = dataclasses.field(default_factory=list)

    def add(self, seconds: float, cost: float) -> bool:
        """Records a solution; returns whether it is the best so far."""
        is_better = not self.incumbents or cost < self.incumbents[-1][1]
        if is_better:
            self.incumbents.append((seconds, cost))
        return is_better


_started = time.perf_counter()
_delay = 0.0
_current = JobReport()
_cancelled = threading.Event()
_send: Callable[[str, Any], None] | None = None


def start_report(delay: float = 0.0) -> JobReport:
    """Starts the report of a new job.

    Args:
        delay: Seconds since the job was sent: while the process started.
    """
    global _started, _delay, _current
    _started, _delay, _current = time.perf_counter(), max(delay, 0.0), JobReport()
    return _current


def job_start(max_runtime: float) -> float:
    """When the limit of the current job began, as a time of `time.perf_counter`.

    The start of the process counts towards the limit, but takes at most half of it.

    Args:
        max_runtime: Limit in seconds.
    """
    return time.perf_counter() - min(_delay, max_runtime / 2)


def record_cost(cost: float) -> bool:
    """Records the cost of a solution found just now; returns whether it is the best so far.

    Args:
        cost: In the units of the environment.
    """
    is_better = _current.add(time.perf_counter() - _started, cost)
    if is_better and _send is not None:
        _send("cost", cost)
    return is_better


def finish_report() -> JobReport:
    """Returns the report of the current job, complete with its time."""
    _current.seconds = time.perf_counter() - _started
    return _current


def report_incumbent(result: Any) -> None:
    """Sends the best result so far; it is the result of the job if the job is killed."""
    if _send is not None:
        _send("incumbent", result)


def send_messages_with(send: Callable[[str, Any], None]) -> None:
    """Sets the function that sends costs and incumbents. Without one, they are dropped."""
    global _send
    _send = send


def is_cancelled() -> bool:
    """Whether the job should end now with its best result."""
    return _cancelled.is_set()


def cancellation() -> threading.Event:
    """The event that is set while the current job is cancelled."""
    return _cancelled


def cancel() -> None:
    """Cancels the current job."""
    _cancelled.set()


def accept_job() -> None:
    """Forgets that an earlier job was cancelled."""
    _cancelled.clear()
