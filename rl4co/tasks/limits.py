"""Hard time limits: work runs in a thread that is abandoned when its time is over.

Solvers and searches check the clock and their cancellation between two steps. A step may take long:
compiled code is compiled at its first use, and an iteration of a search on a large instance takes
half a minute. The caller then continues with the best solution so far.
"""

from __future__ import annotations

import contextlib
import threading
import time

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from rl4co.core.errors import RL4COError, StoppedError
from rl4co.solvers._cancellation import CancelToken, cancelled_by

T = TypeVar("T")

#: Seconds beyond its limit, start of processes included, after which work is cancelled.
GRACE = 1.0
#: Seconds after its cancellation when it is abandoned.
CANCEL_GRACE = 1.2
#: Seconds between two checks of the clock.
_POLL_INTERVAL = 0.05

_abandoned: list[threading.Thread] = []


def wait(
    work: Callable[[], T], token: CancelToken, seconds: float | None, accept: Callable[[T], T]
) -> T:
    """Waits for the result of `work()`; when time is over, the result is its last incumbent.

    Args:
        work: Called in a separate thread with the token.
        token: Cancels the work; collects what was cut short.
        seconds: Limit; None: no limit.
        accept: Returns the final form of a result, or raises if it is invalid.

    Raises:
        StoppedError: Time is over or the work was interrupted, and there is no incumbent.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    late = threading.Event()

    def run() -> None:
        try:
            with token.active(), cancelled_by(late):
                results.append(accept(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    deadline = float("inf") if seconds is None else time.perf_counter() + seconds + GRACE
    end = float("inf")
    while thread.is_alive() and time.perf_counter() < end:
        thread.join(_POLL_INTERVAL)
        if end == float("inf") and (token.stop.is_set() or time.perf_counter() > deadline):
            end = time.perf_counter() + CANCEL_GRACE
            late.set()
    if errors and not isinstance(errors[0], StoppedError):
        raise errors[0]
    if late.is_set() and not token.stop.is_set():
        token.cuts.append(
            f"there was no end within {round(seconds or 0.0, 1):g} s; this is the best until then"
        )
    if results:
        return results[0]
    if thread.is_alive():
        _abandoned.append(thread)
    return _last_incumbent(token, seconds, accept)


def _last_incumbent(token: CancelToken, seconds: float | None, accept: Callable[[T], T]) -> T:
    """The last incumbent of the work, if it is valid."""
    if token.incumbent is not None:
        # A simple heuristic may not know all constraints.
        with contextlib.suppress(RL4COError):
            return accept(token.incumbent())
    if token.stop.is_set():
        raise StoppedError("expected a solution, got an interrupt before there was one")
    raise StoppedError(
        f"expected a solution within {round(seconds or 0.0, 1):g} s, got none; raise --max-runtime "
        "or try another --solver"
    )


def has_abandoned_work() -> bool:
    """Whether abandoned work still runs; the process must not wait for it."""
    return any(thread.is_alive() for thread in _abandoned)
