"""Threads that share the rows of a compiled loop."""

from __future__ import annotations

import functools
import os

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

from rl4co.core.errors import ConfigError


@functools.cache
def _pool(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting new ones for every call would take as long as some."""
    return ThreadPoolExecutor(count, thread_name_prefix="rl4co-kernel")


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_in_chunks(run: Callable[[range], None], rows: int, threads: int) -> None:
    """Calls `run` on consecutive ranges that cover `rows`, one per thread.

    Compiled loops release the GIL, so plain threads scale; numba's own parallel loops would bring a
    threading layer that does not survive forked data-loader workers.
    """
    if threads < 1:
        raise ConfigError(f"expected threads of at least 1, got {threads}")
    count = min(threads, max(rows, 1))
    borders = (rows * i // count for i in range(count + 1))
    first, *others = (range(*pair) for pair in pairwise(borders))
    futures = [_pool(len(others)).submit(run, chunk) for chunk in others]
    try:
        run(first)
    finally:
        wait(futures)
    for future in futures:
        future.result()
