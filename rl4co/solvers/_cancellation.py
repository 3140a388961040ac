"""Cancellation of a solve from outside, and its incumbent.

    token = CancelToken()
    with token.active():
        env.solve(instances, solver="ils", max_runtime=60)  # ends soon after token.stop.set()
    token.cuts  # for instance that LKH did not end in time

Solvers check :func:`is_cancelled` regularly. Without a token they are never cancelled.
"""

from __future__ import annotations

import contextlib
import threading
import warnings

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any


class CancelToken:
    """Cancels one solve, in its thread and in those that it starts.

    Args:
        stop: Event that cancels the solve; None: a new one.
        on_cost: Called with the cost of each improved solution as soon as it is found, perhaps in
            another thread.
        on_incumbent: Called with a function that returns the best solution so far, whenever there
            is a better one.

    Attributes:
        stop: The event.
        cuts: What was cut short, in sentences.
        incumbent: Returns the best solution so far; None: there is none.
    """

    def __init__(
        self,
        stop: threading.Event | None = None,
        on_cost: Callable[[float], object] = lambda cost: None,
        on_incumbent: Callable[[Callable[[], Any]], object] = lambda incumbent: None,
    ) -> None:
        self.stop = threading.Event() if stop is None else stop
        self.on_cost, self.on_incumbent = on_cost, on_incumbent
        self.cuts: list[str] = []
        self.incumbent: Callable[[], Any] | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[CancelToken]:
        """The token of everything that the block calls."""
        reset = _TOKEN.set(self)
        try:
            with cancelled_by(self.stop):
                yield self
        finally:
            _TOKEN.reset(reset)


_TOKEN: ContextVar[CancelToken | None] = ContextVar("token", default=None)
_CONVERSION: ContextVar[Callable[[Any], Any] | None] = ContextVar("conversion", default=None)
_EVENTS: ContextVar[tuple[threading.Event, ...]] = ContextVar("events", default=())


def is_cancelled() -> bool:
    """Whether a solver should end now with its best solution."""
    return any(event.is_set() for event in _EVENTS.get())


@contextlib.contextmanager
def cancelled_by(event: threading.Event) -> Iterator[None]:
    """One more event cancels what the block calls."""
    reset = _EVENTS.set((*_EVENTS.get(), event))
    try:
        yield
    finally:
        _EVENTS.reset(reset)


@contextlib.contextmanager
def cancel_on_error() -> Iterator[None]:
    """If the block fails, threads that it started with a copy of its context are cancelled."""
    failed = threading.Event()
    with cancelled_by(failed):
        try:
            yield
        except BaseException:  # Ctrl-C most of all
            failed.set()
            raise


def report_cut(message: str) -> None:
    """Reports what was cut short, to the token or else as a warning.

    Args:
        message: A sentence.
    """
    token = _TOKEN.get()
    if token is None:
        warnings.warn(message, stacklevel=3)
    elif message not in token.cuts:
        token.cuts.append(message)


def report_cost(cost: float) -> None:
    """Reports the cost of an improved solution.

    Args:
        cost: In the units of the environment.
    """
    token = _TOKEN.get()
    if token is not None:
        token.on_cost(cost)


def report_incumbent(solution: Callable[[], Any]) -> None:
    """Reports the best solution so far, which is used if time ends before the solver does.

    Args:
        solution: Returns the solution; called only if it is needed, perhaps in another thread.
    """
    token, convert = _TOKEN.get(), _CONVERSION.get()
    if token is not None:
        token.incumbent = solution if convert is None else lambda: convert(solution())
        token.on_incumbent(token.incumbent)


@contextlib.contextmanager
def converting_incumbents(convert: Callable[[Any], Any]) -> Iterator[None]:
    """Incumbents that the block reports are converted into the form that the caller expects.

    Args:
        convert: Called with an incumbent, only if it is needed.
    """
    reset = _CONVERSION.set(convert)
    try:
        yield
    finally:
        _CONVERSION.reset(reset)
