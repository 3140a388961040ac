"""What a worker process and its owner tell each other about a job besides arguments and result.

A worker has one job at a time, so there is one account per process. Solvers that know of better
solutions before they end call :func:`note_incumbent` and, so that nothing is lost if the worker has
to be killed, :func:`publish`. Those that can end early ask :func:`is_stop_wanted`.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from collections.abc import Callable
from typing import Any


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
_stop_wanted = threading.Event()
_publisher: Callable[[Any], None] | None = None


def open_account() -> Account:
    """Begins the account of a new job."""
    global _started, _current
    _started, _current = time.perf_counter(), Account()
    return _current


def note_incumbent(cost: float) -> bool:
    """Notes the cost of a solution found just now; whether it is the best so far.

    Args:
        cost: In the units of the environment.
    """
    incumbents = _current.incumbents
    is_better = not incumbents or cost < incumbents[-1][1]
    if is_better:
        incumbents.append((time.perf_counter() - _started, cost))
    return is_better


def close_account() -> Account:
    """The account of the current job, complete with its time."""
    _current.seconds = time.perf_counter() - _started
    return _current


def publish(result: Any) -> None:
    """Hands over the best result so far: that of the job, should it not come to its end."""
    if _publisher is not None:
        _publisher(result)


def publish_by(send: Callable[[Any], None]) -> None:
    """Sets how results are handed over; without, they are not."""
    global _publisher
    _publisher = send


def is_stop_wanted() -> bool:
    """Whether the owner wants the result now, whatever it is."""
    return _stop_wanted.is_set()


def want_stop() -> None:
    """The owner's wish arrives. It is the last one: no other job follows."""
    _stop_wanted.set()
