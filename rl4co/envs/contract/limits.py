"""A time limit for code of others: a loop that never ends must not keep a check from ending."""

from __future__ import annotations

import ctypes
import threading

from collections.abc import Iterator
from contextlib import contextmanager


class OutOfTimeError(BaseException):
    """Raised inside code that a time limit interrupts; no `except Exception` of it catches this."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupts the block by :class:`OutOfTimeError` where it stands, in any thread.

    The interpreter raises it between two steps of Python code; a single call that never comes back
    from compiled code is not interrupted.
    """
    thread, over = threading.get_ident(), False
    lock = threading.Lock()

    def interrupt() -> None:
        with lock:
            if not over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread), ctypes.py_object(OutOfTimeError)
                )

    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            over = True
        timer.cancel()
