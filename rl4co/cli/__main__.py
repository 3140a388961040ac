"""`python -m rl4co.cli` is the command `rl4co`."""

from __future__ import annotations

from rl4co.cli import main

if __name__ == "__main__":  # not in worker processes, which import this file
    main()
