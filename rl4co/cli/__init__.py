"""The command line: `rl4co train | eval | solve | ...`, one module for each command.

A new command is a new module here that decorates a function with `@app.command()`; it is found
automatically. Modules that begin with an underscore are shared parts. Modules import nothing heavy
at the top: `rl4co --help` and `rl4co list` need no large library, and the other commands import
torch when they run.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from rl4co.cli._frame import app
from rl4co.training.memory import tune_allocator

__all__ = ["app", "main"]

#: Commands with a trainer, whose option `tune_allocator` decides.
_TRAINING = {"train", "tune"}

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")


def main() -> None:
    """Entry point of the command `rl4co`."""
    if not set(sys.argv[1:2]) & _TRAINING:
        tune_allocator()
    app(prog_name="rl4co")
