"""Marks of processes in files and their names: whose is this, and is that process still running?"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re

#: A process and the machine it runs on; nothing that a file name cannot have.
_MARK = re.compile(r"(\d{1,10})-([0-9a-f]{8})")


def own_mark() -> str:
    """The mark of this process."""
    return f"{os.getpid()}-{_machine()}"


def has_ended(mark: str) -> bool:
    """Whether the process with this mark is known to run no more.

    Of processes on other machines, and of what is no mark, nothing is known.
    """
    match = _MARK.fullmatch(mark)
    if match is None or match[2] != _machine() or os.name != "posix":
        return False
    try:
        os.kill(int(match[1]), 0)  # only asks
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # of somebody else
        return False
    return False


def process_number(mark: str) -> int | None:
    """The number of the process with this mark; None if it is no mark."""
    match = _MARK.fullmatch(mark)
    return None if match is None else int(match[1])


@functools.cache
def _machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]
