"""Limits that hold whatever happens: work in a thread that is left alone when nobody waits for it.

Solvers and searches look at the clock, and whether they are to stop, between two steps. A step may
take long: compiled code is compiled when it is first used, and an iteration of a search on a large
instance takes half a minute. Who has promised to be back takes the best solution so far and goes.
"""

from __future__ import annotations

import contextlib
import threading
import time

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from rl4co.core.errors import RL4COError, StoppedError
from rl4co.solvers._watch import Watch, heeding

T = TypeVar("T")

#: Seconds beyond its time, start of processes included, after which work is asked to stop.
GRACE = 1.0
#: Seconds after this, or after an interrupt, when it is left alone.
STOP_GRACE = 1.2
#: Seconds between two looks at the clock.
_LOOK = 0.05

_abandoned: list[threading.Thread] = []


def attend(
    work: Callable[[], T], watch: Watch, seconds: float | None, accept: Callable[[T], T]
) -> T:
    """The result of `work()`, or what it has offered to the watch when time is over.

    Args:
        work: Called in a thread of its own, which `watch` is over.
        watch: Knows whether to stop; told if something is cut short.
        seconds: Time; None: no limit.
        accept: Gives a result its final form, or raises for one that will not do.

    Raises:
        StoppedError: Nobody waits any longer, and there is nothing yet.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    late = threading.Event()

    def run() -> None:
        try:
            with watch.over(), heeding(late):
                results.append(accept(work()))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
    thread.start()
    due = float("inf") if seconds is None else time.perf_counter() + seconds + GRACE
    end = float("inf")
    while thread.is_alive() and time.perf_counter() < end:
        thread.join(_LOOK)
        if end == float("inf") and (watch.stop.is_set() or time.perf_counter() > due):
            end = time.perf_counter() + STOP_GRACE
            late.set()
    if errors and not isinstance(errors[0], StoppedError):
        raise errors[0]
    if late.is_set() and not watch.stop.is_set():
        watch.cuts.append(f"there was no end within {seconds:g} s; this is the best until then")
    if results:
        return results[0]
    if thread.is_alive():
        _abandoned.append(thread)
    return _offered(watch, seconds, accept)


def _offered(watch: Watch, seconds: float | None, accept: Callable[[T], T]) -> T:
    """What the work has offered, if that will do."""
    if watch.best is not None:
        # It may break a constraint that a quick way to a solution knows nothing of.
        with contextlib.suppress(RL4COError):
            return accept(watch.best())
    if watch.stop.is_set():
        raise StoppedError("expected a solution, got an interrupt before there was one")
    raise StoppedError(
        f"expected a solution within {seconds:g} s, got none; raise --max-runtime or try another "
        "--solver"
    )


def has_abandoned_work() -> bool:
    """Whether work that was left alone still goes on: a process must not wait for it."""
    return any(thread.is_alive() for thread in _abandoned)
