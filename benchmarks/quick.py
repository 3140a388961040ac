"""The option `--quick` of all benchmark scripts: everything small, to see that it runs."""

from __future__ import annotations

import argparse
import atexit
import shutil
import sys
import tempfile

from pathlib import Path
from typing import Any

HELP = "everything small, to see that it runs; stores nothing"


def parse_arguments(
    parser: argparse.ArgumentParser, argv: list[str] | None, **quick: Any
) -> argparse.Namespace:
    """Parses a command line in which `--quick` changes the defaults; explicit options win.

    Args:
        parser: Parser of the script; `--quick` is added.
        argv: Arguments; None: those of the process.
        quick: Values of options for a quick run. Results go to a temporary folder.
    """
    parser.add_argument("--quick", action="store_true", help=HELP)
    arguments = sys.argv[1:] if argv is None else argv
    if "--quick" in arguments:
        folder = Path(tempfile.mkdtemp(prefix="rl4co-benchmark-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        parser.set_defaults(results=folder, **quick)
    return parser.parse_args(arguments)
