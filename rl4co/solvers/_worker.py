"""A worker process: reads pickled jobs from stdin, writes pickled results to stdout.

Started as `python -m rl4co.solvers._worker package.module:function` by
:mod:`rl4co.solvers._parallel`, and by nobody else.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback


def main(target: str) -> None:
    """Calls the target for each job until stdin ends."""
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
        try:
            reply = (True, call(*arguments))
        except Exception:
            reply = (False, traceback.format_exc())
        pickle.dump(reply, results)
        results.flush()


if __name__ == "__main__":
    main(sys.argv[1])
