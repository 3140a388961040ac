"""Runs one job per instance in worker processes, with a progress bar.

The workers are fresh interpreters rather than forks or `multiprocessing` children: forking a
process in which torch has threads is unsafe, and spawned children run the caller's script again. A
solver that crashes takes its worker with it, not the caller.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

from rl4co.core.errors import RL4COError
from rl4co.solvers._account import Account


class Worker:
    """A process that calls one function for job after job.

    Args:
        target: The function as `package.module:function`; its module should import quickly.

    Attributes:
        account: What it told about its last job.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.account = Account()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rl4co.solvers._worker", target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )

    def __call__(self, arguments: Sequence[Any]) -> Any:
        """The result of `target(*arguments)`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            pickle.dump(tuple(arguments), self._process.stdin)
            self._process.stdin.flush()
            done, result, self.account = pickle.load(self._process.stdout)
        except (BrokenPipeError, EOFError, pickle.UnpicklingError) as error:
            code = self._process.wait()
            raise RL4COError(
                f"expected a result of {self.target}, got a process that ended with code {code}"
            ) from error
        if not done:
            raise RL4COError(f"expected a result of {self.target}, got an error:\n{result}")
        return result

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
        self._process.wait()


class Crew:
    """Workers that stay between calls of :func:`map_instances`, and accounts of their jobs.

        with Crew() as crew:
            with crew.at_work() as accounts:
                env.solve(instances, solver="pyvrp")  # one account for each instance

    Starting a worker takes a fraction of a second, which matters where instances are solved one by
    one. Several threads may share a crew; each is told about its own jobs.
    """

    def __init__(self) -> None:
        self._idle: dict[str, list[Worker]] = {}
        self._busy: set[Worker] = set()
        self._lock = threading.Lock()

    def hire(self, target: str) -> Worker:
        """A worker for a target: one that is idle, or else a new one."""
        with self._lock:
            idle = self._idle.get(target)
            worker = idle.pop() if idle else Worker(target)
            self._busy.add(worker)
        return worker

    def release(self, worker: Worker) -> None:
        """Takes a worker back that is fit for another job."""
        with self._lock:
            self._busy.discard(worker)
            self._idle.setdefault(worker.target, []).append(worker)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[list[Account]]:
        """Solvers called by this thread use the crew; gives their accounts in the order of jobs."""
        accounts: list[Account] = []
        token = _SHIFT.set((self, accounts))
        try:
            yield accounts
        finally:
            _SHIFT.reset(token)

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends all workers; after an error, those that are busy in other threads as well."""
        with self._lock:
            for worker in (*self._busy, *(w for idle in self._idle.values() for w in idle)):
                worker.__exit__(kind, error, trace)
            self._busy.clear()
            self._idle.clear()


_SHIFT: ContextVar[tuple[Crew, list[Account]] | None] = ContextVar("shift", default=None)


def map_instances(
    target: str,
    jobs: Sequence[Sequence[Any]],
    num_procs: int = 1,
    *,
    description: str = "Solving",
    progress: bool | None = None,
) -> list[Any]:
    """Results of `target(*job)` for all jobs, in their order.

    Args:
        target: The function as `package.module:function`.
        jobs: Arguments of each call; they and the results must be picklable.
        num_procs: Number of processes.
        description: Text beside the progress bar.
        progress: Whether to show it; None: if stderr is a terminal and no :class:`Crew` is at work,
            whose owner has a bar of its own.
    """
    from rich.console import Console
    from rich.progress import Progress

    shift = _SHIFT.get()
    show = sys.stderr.isatty() and shift is None if progress is None else progress
    results: list[Any] = [None] * len(jobs)
    accounts = [Account()] * len(jobs)
    workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    hire = Worker if shift is None else shift[0].hire
    pool = [hire(target) for _ in range(min(num_procs, len(jobs)))]
    try:
        for worker in pool:
            workers.put(worker)

        def call(job: Sequence[Any]) -> tuple[Any, Account]:
            worker = workers.get()
            try:
                return worker(job), worker.account
            finally:
                workers.put(worker)

        with (
            ThreadPoolExecutor(max(len(pool), 1)) as threads,
            Progress(console=Console(stderr=True), disable=not show) as bar,
        ):
            task = bar.add_task(description, total=len(jobs))
            pending = {threads.submit(call, job): index for index, job in enumerate(jobs)}
            try:
                for future in as_completed(pending):
                    index = pending[future]
                    results[index], accounts[index] = future.result()
                    bar.advance(task)
            except BaseException as error:
                # Without this the other jobs would be finished first.
                threads.shutdown(wait=False, cancel_futures=True)
                while pool:
                    pool.pop().__exit__(type(error), error, None)
                raise
        if shift is not None:
            shift[1].extend(accounts)
            while pool:
                shift[0].release(pool.pop())
    finally:
        for worker in pool:
            worker.__exit__(None, None, None)
    return results


def _environment() -> dict[str, str]:
    """The caller's environment, with this package on the path and one thread per process."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
