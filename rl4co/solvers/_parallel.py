"""Runs one job per instance in worker processes, with a progress bar.

The workers are fresh interpreters rather than forks or `multiprocessing` children: forking a
process in which torch has threads is unsafe, and spawned children run the caller's script again. A
solver that crashes takes its worker with it, not the caller.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import TracebackType
from typing import Any

from rl4co.core.errors import RL4COError


class Worker:
    """A process that calls one function for job after job.

    Args:
        target: The function as `package.module:function`; its module should import quickly.
    """

    def __init__(self, target: str) -> None:
        self.target = target
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
            done, result = pickle.load(self._process.stdout)
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
        progress: Whether to show it; None: if stderr is a terminal.
    """
    from rich.console import Console
    from rich.progress import Progress

    show = sys.stderr.isatty() if progress is None else progress
    results: list[Any] = [None] * len(jobs)
    workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    pool = [Worker(target) for _ in range(min(num_procs, len(jobs)))]
    try:
        for worker in pool:
            workers.put(worker)

        def call(job: Sequence[Any]) -> Any:
            worker = workers.get()
            try:
                return worker(job)
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
                    results[pending[future]] = future.result()
                    bar.advance(task)
            except BaseException as error:
                # Without this the other jobs would be finished first.
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in pool:
                    worker.__exit__(type(error), error, None)
                raise
    finally:
        for worker in pool:
            worker.__exit__(None, None, None)
    return results


def _environment() -> dict[str, str]:
    """The caller's environment, with this package on the path and one thread per process."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
