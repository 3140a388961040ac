"""Worker processes of the service: every task runs in one of them, within a time limit."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading

from collections.abc import Callable, Mapping
from typing import Any

from rl4co.core.errors import RL4COError
from rl4co.serve.limits import Limits
from rl4co.solvers._worker_pool import WorkerPool

TARGET = "rl4co.serve._tasks:run"
#: Seconds beyond the limit of a task for what surrounds it: imports, reading, loading a model.
OVERHEAD = 20.0

logger = logging.getLogger("rl4co.serve")


class RequestError(Exception):
    """An answer that is not a success.

    Args:
        message: What is wrong and what to do.
        status: Status of HTTP.
        field: Field of the request.
    """

    def __init__(self, message: str, status: int = 422, field: str | None = None) -> None:
        self.message, self.status, self.field = message, status, field
        super().__init__(message)


class Workers:
    """The worker processes of a server.

    Args:
        limits: Limits of tasks.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._pool = WorkerPool()
        self._settings = dataclasses.asdict(limits)
        self._waiting = threading.BoundedSemaphore(limits.max_waiting)
        self._running = threading.BoundedSemaphore(limits.max_jobs)
        self._is_warm = threading.Event()

    def warm(self) -> None:
        """Start a process that imports what tasks need; :meth:`ask` waits for it."""
        try:
            with contextlib.suppress(RequestError):
                self.run("warm", {}, self.limits.request_seconds)
        finally:
            self._is_warm.set()

    def ask(self, task: str, payload: Mapping[str, Any]) -> Any:
        """The result of a short task.

        Args:
            task: Name of the task.
            payload: Its input.

        Raises:
            RequestError: The request has a fault, or there are too many of them.
        """
        if not self._waiting.acquire(blocking=False):
            raise RequestError(
                f"expected at most {self.limits.max_waiting} requests at the same time, got more; "
                "try again later",
                429,
            )
        try:
            self._is_warm.wait(self.limits.request_seconds)
            if not self._running.acquire(timeout=self.limits.request_seconds):
                raise RequestError("expected a worker that is free, got none; try again later", 429)
            try:
                return self.run(task, payload, self.limits.request_seconds)
            finally:
                self._running.release()
        finally:
            self._waiting.release()

    def run(
        self,
        task: str,
        payload: Mapping[str, Any],
        seconds: float,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_event: Callable[[Any], object] = lambda event: None,
    ) -> Any:
        """The result of a task; None if it was cancelled.

        Args:
            task: Name of the task.
            payload: Its input.
            seconds: Limit; the worker is killed a little later.
            is_cancelled: Whether to end the task now.
            on_event: Called with each event that the task sends.

        Raises:
            RequestError: The task failed.
        """

        def receive(kind: str, content: Any) -> None:
            if kind == "incumbent":
                on_event(content)

        arguments = (task, payload, self._settings)
        try:
            with self._pool.worker(TARGET) as worker:
                result = worker.run(arguments, seconds + OVERHEAD, is_cancelled, on_message=receive)
        except RL4COError as error:  # the process has ended, or the task raised
            logger.error("task %s: %s", task, error)
            raise RequestError(
                "expected a result, got a failure of the process that computes it (perhaps for "
                "lack of memory); the server's log has more",
                500,
            ) from error
        if result.is_cut:
            if is_cancelled():
                return None
            raise RequestError(
                f"expected a result within {seconds:g} s, got none; give a smaller instance", 408
            )
        outcome = result.value
        if "error" in outcome:
            raise RequestError(outcome["error"], outcome["status"], outcome["field"])
        return outcome["result"]

    def shutdown(self) -> None:
        """Ends all processes, busy ones as well."""
        self._pool.shutdown(kill=True)
