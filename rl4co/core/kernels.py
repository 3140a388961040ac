"""Loops that numba compiles, and threads that share them.

Importing this module does not import numba: a kernel is compiled (or loaded from numba's cache on
disk) when it is first called.
"""

from __future__ import annotations

import functools
import os

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cached_property, update_wrapper
from itertools import pairwise
from typing import Any

from rl4co.core.errors import ConfigError, MissingDependencyError


class LazyKernel:
    """A function that numba compiles when it is first called, from Python or from a kernel.

    Used as a decorator. `_numba_type_` is the attribute by which numba recognises what a global
    name is while it compiles a caller; answering it there makes kernels call each other.

    Args:
        function: What is compiled.
        options: Options of `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function, self.options = function, {"nogil": True, **options}
        update_wrapper(self, function)

    @cached_property
    def compiled(self) -> Any:
        """The numba dispatcher."""
        try:
            import numba
        except ImportError as error:
            raise MissingDependencyError("numba") from error
        try:
            return numba.njit(cache=True, **self.options)(self.function)
        except RuntimeError:  # no writable folder for the cache: compile once per process
            return numba.njit(**self.options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        return self.compiled._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        """Runs the compiled function."""
        return self.compiled(*arguments)


@functools.cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting new ones for every call would take as long as some."""
    return ThreadPoolExecutor(count, thread_name_prefix="rl4co-kernel")


if hasattr(os, "register_at_fork"):  # a forked process has none of the threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)


def run_in_chunks(run: Callable[[range], None], rows: int, threads: int) -> None:
    """Calls `run` on consecutive ranges that cover `rows`, one per thread.

    Kernels release the GIL, so plain threads scale; numba's own parallel loops would bring a
    threading layer that does not survive forked data-loader workers.
    """
    if threads < 1:
        raise ConfigError(f"expected threads of at least 1, got {threads}")
    count = min(threads, max(rows, 1))
    mine, *others = (range(*pair) for pair in pairwise(rows * i // count for i in range(count + 1)))
    helped = [_helpers(count - 1).submit(run, chunk) for chunk in others]
    try:
        run(mine)
    finally:
        wait(helped)
    for future in helped:
        future.result()
