"""Memory of this machine: larger requests are rejected before they are allocated."""

from __future__ import annotations

import math
import os


def exceeds_memory(num_bytes: int) -> bool:
    """Whether something is larger than the memory of this machine; False if that is unknown."""
    return num_bytes > physical_memory()


def physical_memory() -> float:
    """Bytes of memory of this machine, infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return math.inf
