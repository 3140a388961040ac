"""Processes that solve jobs, can be asked to stop, and are killed when their time is over.

They are fresh interpreters rather than forks or `multiprocessing` children: forking a process in
which torch has threads is unsafe, and spawned children run the caller's script again. A solver that
crashes takes its worker with it, not the caller; one that does not look at the clock, or at
anything else, is killed, and what it has published until then is its result.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
import time

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from rl4co.core.errors import RL4COError
from rl4co.solvers._account import Account

#: Seconds beyond its time that a job may take to come to an end by itself.
GRACE = 1.0
#: The same after the wish to stop, at which users look.
STOP_GRACE = 0.8
#: Seconds between two looks at the clock and at who might want a stop.
_LOOK = 0.05
#: Seconds in which an idle or killed worker has certainly ended.
_PATIENCE = 5.0

_lock = threading.Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def _starter(pid: int) -> ThreadPoolExecutor:
    """The thread that starts all workers of a process (a fork of it has none of its threads).

    Linux ends workers with the *thread* that started them, so it has to be one that stays.
    """
    with _lock:
        if pid not in _starters:
            _starters[pid] = ThreadPoolExecutor(1, thread_name_prefix="rl4co-starter")
        return _starters[pid]


class Outcome(NamedTuple):
    """What came of a job.

    Attributes:
        result: Its result; if it was cut short, the last one that it published, or None.
        account: What the worker told about it.
        is_cut: Whether it was cut short.
    """

    result: Any
    account: Account
    is_cut: bool = False


class Worker:
    """A process that calls one function for job after job.

    Args:
        target: The function as `package.module:function`; its module should import quickly.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        parent = os.getpid()
        self._process: subprocess.Popen[bytes] = (
            _starter(parent)
            .submit(
                subprocess.Popen,
                [sys.executable, "-m", "rl4co.solvers._worker", target, str(parent)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
            )
            .result()
        )
        self._sending = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether it can take another job."""
        return self._process.poll() is None

    def run(
        self,
        arguments: Sequence[Any],
        max_runtime: float | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        grace: float = GRACE,
    ) -> Outcome:
        """What comes of `target(*arguments)`.

        Args:
            arguments: Arguments.
            max_runtime: Seconds from its beginning after which it should have ended; None: no
                limit.
            is_stopped: Whether nobody wants to wait any longer.
            grace: Seconds that it may take longer.
        """
        messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        talk = threading.Thread(target=self._talk, args=(arguments, messages), daemon=True)
        talk.start()
        best, began, end = None, time.perf_counter(), float("inf")
        asked = False
        while time.perf_counter() < end:
            try:
                kind, content = messages.get(timeout=_LOOK)
            except queue.Empty:
                kind, content = "", None
            if kind in ("done", "gone"):
                return self._finish(kind, content)
            if kind == "so far":
                best = content
            elif kind == "begun":
                began = time.perf_counter()
                end = float("inf") if max_runtime is None else began + max_runtime + grace
            if not asked and is_stopped():
                asked, end = True, min(end, time.perf_counter() + min(STOP_GRACE, grace))
                self._ask_to_stop()
        self._process.kill()
        self._process.wait()
        talk.join(_PATIENCE)  # until the pipe is empty
        while not messages.empty():
            kind, content = messages.get()
            if kind == "done":  # at the last moment
                return self._finish(kind, content)
            if kind == "so far":
                best = content
        return Outcome(best, Account(time.perf_counter() - began), is_cut=True)

    def _talk(self, arguments: Sequence[Any], messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
        """Sends a job and hands on what is answered, until its end or that of the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            with self._sending:
                pickle.dump(("job", pickle.dumps(tuple(arguments))), self._process.stdin)
                self._process.stdin.flush()
            kind = ""
            while kind != "done":
                kind, content = pickle.load(self._process.stdout)
                messages.put((kind, content))
        except Exception as error:  # whatever a pipe that ends anywhere leads to
            messages.put(("gone", error))

    def _ask_to_stop(self) -> None:
        """Says that the result is wanted now; not if the job itself is still on its way."""
        if self._sending.acquire(blocking=False):
            try:
                assert self._process.stdin is not None
                pickle.dump(("stop", b""), self._process.stdin)
                self._process.stdin.flush()
            except OSError:
                pass  # the worker has ended; so says its other pipe
            finally:
                self._sending.release()

    def _finish(self, kind: str, content: Any) -> Outcome:
        """The outcome of a job that has ended, or the error in it."""
        if kind == "gone":
            code = self._process.wait()
            raise RL4COError(
                f"expected a result of {self.target}, got a process that ended with code {code}"
            ) from content
        done, result, account = content
        if not done:
            raise RL4COError(f"expected a result of {self.target}, got an error:\n{result}")
        return Outcome(result, account)

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process, at once if there is no use for it any more."""
        if kind is not None:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """The caller's environment, with this package on the path and one thread per process."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
