"""Who watches over a solve: asks it to stop, hears what was cut short, and takes what there is.

    watch = Watch()
    with watch.over():
        env.solve(instances, solver="ils", max_runtime=60)  # ends soon after watch.stop.set()
    watch.cuts  # for instance that LKH did not get to its end

Solvers ask :func:`is_stopped` now and then. Without a watch they are never stopped.
"""

from __future__ import annotations

import contextlib
import threading
import warnings

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any


class Watch:
    """A watch over one solve, in its thread and in those that it starts.

    Args:
        stop: Event that asks for an end soon; None: one of its own.

    Attributes:
        stop: The event.
        cuts: What was cut short, in sentences.
        best: Gives the best solution so far; None: there is none.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = threading.Event() if stop is None else stop
        self.cuts: list[str] = []
        self.best: Callable[[], Any] | None = None

    @contextlib.contextmanager
    def over(self) -> Iterator[Watch]:
        """Watches over what the block calls."""
        token = _WATCH.set(self)
        try:
            with heeding(self.stop):
                yield self
        finally:
            _WATCH.reset(token)


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)
_CONVERSION: ContextVar[Callable[[Any], Any] | None] = ContextVar("conversion", default=None)
_STOPS: ContextVar[tuple[threading.Event, ...]] = ContextVar("stops", default=())


def is_stopped() -> bool:
    """Whether somebody wants an end soon."""
    return any(stop.is_set() for stop in _STOPS.get())


@contextlib.contextmanager
def heeding(stop: threading.Event) -> Iterator[None]:
    """What the block calls is stopped by one more event."""
    token = _STOPS.set((*_STOPS.get(), stop))
    try:
        yield
    finally:
        _STOPS.reset(token)


@contextlib.contextmanager
def stop_on_error() -> Iterator[None]:
    """Threads that the block has started, with a copy of its context, stop if it fails."""
    stop = threading.Event()
    with heeding(stop):
        try:
            yield
        except BaseException:  # Ctrl-C most of all
            stop.set()
            raise


def report_cut(what: str) -> None:
    """Says what was cut short: to the watch or, where there is none, as a warning.

    Args:
        what: A sentence.
    """
    watch = _WATCH.get()
    if watch is None:
        warnings.warn(what, stacklevel=3)
    elif what not in watch.cuts:
        watch.cuts.append(what)


def offer(best: Callable[[], Any]) -> None:
    """Offers a solution in case that no better one comes in time.

    Args:
        best: Gives the solution, in the form that the watch's owner expects; called only if it is
            needed, perhaps in another thread.
    """
    watch, convert = _WATCH.get(), _CONVERSION.get()
    if watch is not None:
        watch.best = best if convert is None else lambda: convert(best())


@contextlib.contextmanager
def converting(convert: Callable[[Any], Any]) -> Iterator[None]:
    """What the block offers is converted into what the watch's owner expects.

    Args:
        convert: Called with an offer, only if it is needed.
    """
    token = _CONVERSION.set(convert)
    try:
        yield
    finally:
        _CONVERSION.reset(token)
