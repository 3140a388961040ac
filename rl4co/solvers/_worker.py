"""A worker process: reads pickled jobs from stdin, writes pickled results to stdout.

Started as `python -m rl4co.solvers._worker package.module:function` by
:mod:`rl4co.solvers._parallel`, and by nobody else.
"""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import sys
import traceback

from rl4co.solvers._account import close_account, open_account


def main(target: str) -> None:
    """Calls the target for each job until stdin ends."""
    # Ctrl-C in a terminal reaches all processes; whoever started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs = sys.stdin.buffer
    # Results get a pipe of their own: whatever a solver prints goes to stderr.
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    module, function = target.split(":")
    call = getattr(importlib.import_module(module), function)
    while True:
        try:
            arguments = pickle.load(jobs)
        except EOFError:
            return
        open_account()
        try:
            done, result = True, call(*arguments)
        except Exception:
            done, result = False, traceback.format_exc()
        pickle.dump((done, result, close_account()), results)
        results.flush()


if __name__ == "__main__":
    main(sys.argv[1])
