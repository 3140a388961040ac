"""A worker process: reads pickled jobs from stdin, writes pickled results to stdout.

Started as `python -m rl4co.solvers._worker package.module:function PARENT` by
:mod:`rl4co.solvers._workers`, and by nobody else. It never outlives the process PARENT: Linux sends
a signal, and everywhere the end of stdin says so.
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
import traceback

from typing import IO, Any

from rl4co.solvers._account import close_account, open_account, publish_by, want_stop

#: Request of Linux to get a signal when the parent ends (`linux/prctl.h`).
_PR_SET_PDEATHSIG = 1


def main(target: str, parent: int) -> None:
    """Calls the target for each job until stdin ends."""
    end_with(parent)
    # Ctrl-C in a terminal and a polite end of a group of processes reach all of them; whoever
    # started this one wants its best solution before he ends it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Results get a pipe of their own: whatever a solver prints goes to stderr.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sending = threading.Lock()

    def send(kind: str, content: Any) -> None:
        with sending:  # solvers call back from threads of their own
            pickle.dump((kind, content), results)
            results.flush()

    publish_by(lambda result: send("so far", result))
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True).start()
    module, function = target.split(":")
    call = getattr(importlib.import_module(module), function)
    while True:
        # Unpickled here: it may import what the target imports, and not all packages bear that in
        # two threads at the same time.
        arguments = pickle.loads(jobs.get())
        send("begun", None)
        open_account()
        try:
            done, result = True, call(*arguments)
        except Exception:
            done, result = False, traceback.format_exc()
        send("done", (done, result, close_account()))


def end_with(parent: int) -> None:
    """Ends this process as soon as its parent has ended, by whatever, where Linux knows how."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was faster
            os._exit(1)


def _listen(stream: IO[bytes], jobs: queue.SimpleQueue[bytes]) -> None:
    """Takes jobs, and the wish to stop the current one; ends the process with the stream."""
    try:
        while True:
            kind, job = pickle.load(stream)
            if kind == "stop":
                want_stop()
            else:
                jobs.put(job)
    finally:
        os._exit(0)  # nobody is left to read a result


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
    os._exit(1)  # Python itself would wait for the thread that listens
