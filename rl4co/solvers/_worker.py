"""A worker process: reads pickled jobs from stdin, writes pickled messages to stdout.

:mod:`rl4co.solvers._worker_process` starts it as
`python -m rl4co.solvers._worker package.module:function PARENT`. It never outlives the process
PARENT: Linux sends a signal, and on all systems stdin ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback

from typing import IO, Any

from rl4co.solvers._job_report import (
    accept_job,
    cancel,
    finish_report,
    send_messages_with,
    start_report,
)

#: Request of Linux to get a signal when the parent ends (`linux/prctl.h`).
_PR_SET_PDEATHSIG = 1


def main(target: str, parent: int) -> None:
    """Calls the target for each job until stdin ends."""
    end_with(parent)
    # Ctrl-C in a terminal reaches the whole process group, but the parent still needs the best
    # solution of this process and ends it afterwards.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Messages get the original stdout; whatever a solver prints goes to stderr.
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sending = threading.Lock()

    def send(kind: str, content: Any) -> None:
        with sending:  # solvers call back from their own threads
            pickle.dump((kind, content), stream)
            stream.flush()

    send_messages_with(send)
    jobs: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    module, function = target.split(":")
    call = getattr(importlib.import_module(module), function)
    while True:
        # Unpickled in this thread: it may import what the target imports, and some packages fail
        # when two threads import them at the same time.
        sent, job = jobs.get()
        arguments = pickle.loads(job)
        send("started", None)
        start_report(delay=time.time() - sent)
        try:
            succeeded, result = True, call(*arguments)
        except Exception:
            succeeded, result = False, traceback.format_exc()
        send("done", (succeeded, result, finish_report()))


def end_with(parent: int) -> None:
    """Lets Linux kill this process as soon as its parent ends."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)


def _listen(stream: IO[bytes], jobs: queue.SimpleQueue[tuple[float, bytes]]) -> None:
    """Receives jobs and cancellations; ends the process with the stream."""
    try:
        while True:
            kind, sent, job = pickle.load(stream)
            if kind == "cancel":
                cancel()
            else:
                accept_job()
                jobs.put((sent, job))
    finally:
        os._exit(0)  # the parent has ended or closed the stream


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # Python itself would wait for the thread that listens
