"""Ctrl-C as a wish to end soon, with an answer."""

from __future__ import annotations

import contextlib
import signal
import threading

from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_interrupt(caught: bool) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, once: what is being improved then ends with what it has."""
    stop = threading.Event()
    if not caught or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def end(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, before)  # a second one ends everything

    before = signal.signal(signal.SIGINT, end)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
