"""What a worker process tells about a job besides its result: its time and improving solutions.

A worker has one job at a time, so there is one account per process. Solvers that know of better
solutions before they end call :func:`note_incumbent`; all others need not care.
"""

from __future__ import annotations

import dataclasses
import time


@dataclasses.dataclass
class Account:
    """An account of one job.

    Attributes:
        seconds: How long it took, without starting the process.
        incumbents: Seconds since its beginning, and cost, of each solution that improved.
    """

    seconds: float = 0.0
    incumbents: list[tuple[float, float]] = dataclasses.field(default_factory=list)


_started = time.perf_counter()
_current = Account()


def open_account() -> Account:
    """Begins the account of a new job."""
    global _started, _current
    _started, _current = time.perf_counter(), Account()
    return _current


def note_incumbent(cost: float) -> None:
    """Notes the cost of a solution found just now, if it is the best so far.

    Args:
        cost: In the units of the environment.
    """
    incumbents = _current.incumbents
    if not incumbents or cost < incumbents[-1][1]:
        incumbents.append((time.perf_counter() - _started, cost))


def close_account() -> Account:
    """The account of the current job, complete with its time."""
    _current.seconds = time.perf_counter() - _started
    return _current
