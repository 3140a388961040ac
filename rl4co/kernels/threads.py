"""Threads that share the rows of a compiled loop."""

from __future__ import annotations

import ctypes
import functools
import os

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import cast

from rl4co.core.errors import ConfigError

#: Body of a parallel region of OpenMP: it is given a pointer that nobody needs here.
_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@functools.cache
def _helpers(count: int) -> ThreadPoolExecutor:
    """Threads that wait for work; starting new ones for every call would take as long as some."""
    return ThreadPoolExecutor(count, thread_name_prefix="rl4co-kernel")


@functools.cache
def _open_team() -> Callable[..., None] | None:
    """The function that starts a parallel region on torch's own threads, where there is one.

    After an operation torch's threads go on spinning for some milliseconds. Threads besides them
    would have to share their cores, and kernels of a few milliseconds would gain little (measured
    on two cores: a third of the time of a kernel of 20 ms lost).
    """
    try:
        region = ctypes.CDLL(None).GOMP_parallel  # GNU OpenMP; LLVM's has it as well
    except (AttributeError, OSError, TypeError):  # torch was not imported, or has other threads
        return None
    region.argtypes = (_Body, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    region.restype = None
    return cast(Callable[..., None], region)


def _forget_threads() -> None:
    """A forked process has none of its parent's threads, and a team would wait for them."""
    global _is_forked
    _is_forked = True
    _helpers.cache_clear()


_is_forked = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def has_team() -> bool:
    """Whether ranges run on torch's own threads, so that torch's operations inside use just one."""
    return not _is_forked and _open_team() is not None


def run_in_chunks(run: Callable[[range], None], rows: int, threads: int) -> None:
    """Calls `run` on consecutive ranges that cover `rows`, one per thread.

    Kernels release the GIL, so plain threads scale; numba's own parallel loops would bring a
    threading layer that does not survive forked data-loader workers.
    """
    if threads < 1:
        raise ConfigError(f"expected threads of at least 1, got {threads}")
    count = min(threads, max(rows, 1))
    chunks = [range(*pair) for pair in pairwise(rows * i // count for i in range(count + 1))]
    if count == 1:
        run(chunks[0])
        return
    region = _open_team() if has_team() else None
    if region is None:
        _run_with_helpers(run, chunks)
    else:
        _run_in_team(region, run, chunks)


def _run_with_helpers(run: Callable[[range], None], chunks: list[range]) -> None:
    """On threads of this module, and the calling one."""
    mine, *others = chunks
    helped = [_helpers(len(others)).submit(run, chunk) for chunk in others]
    try:
        run(mine)
    finally:
        wait(helped)
    for future in helped:
        future.result()


def _run_in_team(
    region: Callable[..., None], run: Callable[[range], None], chunks: list[range]
) -> None:
    """On torch's threads, of which the calling one is the first."""
    left, errors = iter(chunks), list[BaseException]()

    def body(_: int | None) -> None:
        for chunk in left:  # all threads take from the same list
            try:
                run(chunk)
            except BaseException as error:  # must not leave the region
                errors.append(error)

    region(_Body(body), None, len(chunks), 0)
    if errors:
        raise errors[0]
