"""Ctrl-C and SIGTERM: end with the best result so far, or at once with an orderly cleanup."""

from __future__ import annotations

import contextlib
import signal
import threading

from collections.abc import Iterator

#: Shells add this to the number of a signal to form the exit code.
SIGNALLED = 128


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Exit code of a command that has ended with this exception."""
    is_sigterm = isinstance(interrupt, Terminated)
    return SIGNALLED + (signal.SIGTERM if is_sigterm else signal.SIGINT)


@contextlib.contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """SIGTERM raises an exception, so that temporary files are removed and results are closed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupt:
    """Whether the user has interrupted the command.

    Attributes:
        stop: Set by the first interrupt.
        signal: Number of its signal; None: there was none.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of an interrupted command; 0 if it was not interrupted."""
        return 0 if self.signal is None else SIGNALLED + self.signal


@contextlib.contextmanager
def catch_interrupts() -> Iterator[Interrupt]:
    """The first Ctrl-C or SIGTERM sets `stop`; a second one raises an exception."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def on_signal(number: int, _: object) -> None:
        interrupt.signal = number
        interrupt.stop.set()
        restore()  # a second signal raises an exception

    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield interrupt
    finally:
        restore()
