"""The parent's side of a worker process: sends jobs, cancels them, kills them after their limit.

Workers are fresh interpreters rather than forks or `multiprocessing` children: forking a process in
which torch has threads is unsafe, and spawned children run the caller's script again. A solver that
crashes ends its worker, not the caller. A solver that ignores its limit is killed; its last
incumbent is its result.
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
from typing import Any, NamedTuple

from rl4co.core.errors import RL4COError
from rl4co.solvers._job_report import JobReport

#: Seconds that a job may exceed its limit before it is killed.
GRACE = 1.0
#: Seconds that a cancelled job has before it is killed.
CANCEL_GRACE = 0.8
#: Seconds between two checks of the clock and of cancellation.
_POLL_INTERVAL = 0.05
#: Seconds after which an idle or killed process has certainly ended.
_EXIT_TIMEOUT = 5.0

_lock = threading.Lock()
_starters: dict[int, ThreadPoolExecutor] = {}


def _starter(pid: int) -> ThreadPoolExecutor:
    """The thread that starts all workers of a process (a fork of it has none of its threads).

    Linux kills workers when the *thread* that started them ends, so this thread never does.
    """
    with _lock:
        if pid not in _starters:
            _starters[pid] = ThreadPoolExecutor(1, thread_name_prefix="rl4co-starter")
        return _starters[pid]


class JobResult(NamedTuple):
    """The result of a job.

    Attributes:
        value: What the target returned; the last incumbent, or None, if the job was cut short.
        report: The job's report.
        is_cut: Whether the job was cut short.
    """

    value: Any
    report: JobReport
    is_cut: bool = False


class WorkerProcess:
    """A process that calls one function for job after job.

    Args:
        target: The function as `package.module:function`; its module should import quickly.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        parent = os.getpid()
        command = [sys.executable, "-m", "rl4co.solvers._worker", target, str(parent)]
        pipe = subprocess.PIPE
        start = _starter(parent).submit(
            subprocess.Popen, command, stdin=pipe, stdout=pipe, env=_environment()
        )
        self._process: subprocess.Popen[bytes] = start.result()
        self._sending = threading.Lock()

    @property
    def is_alive(self) -> bool:
        """Whether it accepts another job."""
        return self._process.poll() is None

    def run(
        self,
        arguments: Sequence[Any],
        max_runtime: float | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        grace: float = GRACE,
        on_message: Callable[[str, Any], object] = lambda kind, content: None,
    ) -> JobResult:
        """The result of `target(*arguments)`.

        Args:
            arguments: Arguments.
            max_runtime: Seconds until it should end; the start of the process takes at most half
                of them. None: no limit.
            is_cancelled: Whether the job should end now.
            grace: Seconds that it may exceed its limit before it is killed.
            on_message: Called with each "cost" and "incumbent" that the job reports.
        """
        job = pickle.dumps(tuple(arguments))  # here, as errors concern the caller
        messages: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        receiver = threading.Thread(target=self._receive, args=(job, messages), daemon=True)
        receiver.start()
        incumbent, sent, end = None, time.perf_counter(), float("inf")
        started = sent
        has_cancelled = False
        while time.perf_counter() < end:
            try:
                kind, content = messages.get(timeout=_POLL_INTERVAL)
            except queue.Empty:
                kind, content = "", None
            if kind in ("done", "lost"):
                return self._finish(kind, content)
            if kind in ("cost", "incumbent"):
                on_message(kind, content)
            if kind == "incumbent":
                incumbent = content
            elif kind == "started":
                started = time.perf_counter()
                if max_runtime is not None:
                    end = max(sent + max_runtime, started + max_runtime / 2) + grace
            if not has_cancelled and is_cancelled():
                has_cancelled = True
                end = min(end, time.perf_counter() + min(CANCEL_GRACE, grace))
                self._cancel()
        self._process.kill()
        self._process.wait()
        receiver.join(_EXIT_TIMEOUT)  # until the pipe is empty
        while not messages.empty():
            kind, content = messages.get()
            if kind == "done":  # at the last moment
                return self._finish(kind, content)
            if kind == "incumbent":
                incumbent = content
        return JobResult(incumbent, JobReport(time.perf_counter() - started), is_cut=True)

    def _receive(self, job: bytes, messages: queue.SimpleQueue[tuple[str, Any]]) -> None:
        """Sends a job and receives its messages, until it or the process ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            with self._sending:
                pickle.dump(("job", time.time(), job), self._process.stdin)
                self._process.stdin.flush()
            kind = ""
            while kind != "done":
                kind, content = pickle.load(self._process.stdout)
                messages.put((kind, content))
        except Exception as error:  # a pipe that ends in the middle of a message raises anything
            messages.put(("lost", error))

    def _cancel(self) -> None:
        """Cancels the job, unless it is still being sent."""
        if self._sending.acquire(blocking=False):
            try:
                assert self._process.stdin is not None
                pickle.dump(("cancel", time.time(), b""), self._process.stdin)
                self._process.stdin.flush()
            except OSError:
                pass  # the worker has ended, as its other pipe will show
            finally:
                self._sending.release()

    def _finish(self, kind: str, content: Any) -> JobResult:
        """The result of a job that has ended, or the error in it."""
        if kind == "lost":
            code = self._process.wait()
            raise RL4COError(
                f"expected a result of {self.target}, got a process that ended with code {code}"
            ) from content
        succeeded, result, report = content
        if not succeeded:
            raise RL4COError(f"expected a result of {self.target}, got an error:\n{result}")
        return JobResult(result, report)

    def close(self, kill: bool = False) -> None:
        """Ends the process: an idle one by itself, a busy one only if it is killed."""
        if kill:
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue
        try:
            self._process.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """The caller's environment, with this package on the path and one thread per process."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
