"""How threads share the rows of a compiled loop."""

from __future__ import annotations

import os
import threading

import pytest

from rl4co.core.errors import ConfigError
from rl4co.kernels import run_in_chunks


@pytest.mark.parametrize(("rows", "threads"), [(7, 3), (2, 5), (1, 1), (0, 4), (8, 2)])
def test_chunks_cover_every_row_once(rows: int, threads: int) -> None:
    seen: list[int] = []
    run_in_chunks(lambda chunk: seen.extend(chunk), rows, threads)
    assert sorted(seen) == list(range(rows))


def test_chunks_run_at_the_same_time() -> None:
    """Each waits for the others."""
    together = threading.Barrier(3, timeout=30)
    run_in_chunks(lambda chunk: together.wait() and None, 3, 3)


def test_errors_of_any_thread_are_raised_after_all_have_ended() -> None:
    ended = []

    def run(chunk: range) -> None:
        if 1 in chunk:
            raise ValueError("row 1")
        ended.append(chunk.start)

    with pytest.raises(ValueError, match="row 1"):
        run_in_chunks(run, 3, 3)
    assert sorted(ended) == [0, 2]


def test_no_thread_is_rejected() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        run_in_chunks(lambda chunk: None, 3, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    """Data loaders fork; the parent's threads do not exist in the child."""
    run_in_chunks(lambda chunk: None, 2, 2)
    child = os.fork()
    if child == 0:
        seen: list[int] = []
        run_in_chunks(lambda chunk: seen.extend(chunk), 2, 2)
        os._exit(0 if sorted(seen) == [0, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
