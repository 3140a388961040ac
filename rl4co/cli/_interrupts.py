"""Ctrl-C and SIGTERM as a wish to end: soon and with an answer, or at once but in good order."""

from __future__ import annotations

import contextlib
import signal
import threading

from collections.abc import Iterator

#: What shells add to the number of a signal to make an exit code of it.
SIGNALLED = 128


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Exit code of a command that has ended with this exception."""
    is_sigterm = isinstance(interrupt, Terminated)
    return SIGNALLED + (signal.SIGTERM if is_sigterm else signal.SIGINT)


@contextlib.contextmanager
def sigterm_like_ctrl_c() -> Iterator[None]:
    """SIGTERM raises an exception: temporary files are removed, and results are closed."""
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
    """Whether the user has asked for an end.

    Attributes:
        stop: Set as soon as he has.
        signal: Number of the signal by which he did; None: he has not.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.signal: int | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of a command that was interrupted; 0 if it was not."""
        return 0 if self.signal is None else SIGNALLED + self.signal


@contextlib.contextmanager
def catch_interrupts() -> Iterator[Interrupt]:
    """Ctrl-C and SIGTERM are taken note of, once: what goes on then ends with what it has."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return

    def note(number: int, _: object) -> None:
        interrupt.signal = number
        interrupt.stop.set()
        restore()  # a second one ends everything

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    try:
        yield interrupt
    finally:
        restore()
