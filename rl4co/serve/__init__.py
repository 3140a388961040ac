"""The playground: a local web application and an HTTP API to watch policies and solvers at work.

`rl4co serve` starts it; `docs/playground.md` describes it. The server process is light: everything
that reads an instance, loads a model or solves runs in worker processes with a limit on memory and
time (:mod:`rl4co.serve._tasks`), so that neither a hostile file nor a crash can take the server
down, and so that the workers end with it.
"""

from __future__ import annotations
