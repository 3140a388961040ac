"""Jobs: their queue, their threads, their events."""

from __future__ import annotations

import collections
import json
import secrets
import threading

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from rl4co.serve._workers import RequestError, Workers

#: States in which nothing happens any more.
FINAL = ("done", "failed", "cancelled")
#: Events with incumbents of a method; the best one at the end is sent in any case.
MAX_INCUMBENTS = 500


class Event(NamedTuple):
    """An event of a job; its id is its position, from 1, and its data are JSON."""

    name: str
    data: str


class Job:
    """A job and everything that happened to it.

    Args:
        request: The request, checked.
        checked: Problem, instance, best-known value and direction of the instance.
    """

    def __init__(self, request: dict[str, Any], checked: dict[str, Any]) -> None:
        self.id = secrets.token_urlsafe(12)
        self.request, self.checked = request, checked
        self.state = "queued"
        self.methods: list[dict[str, Any]] = [
            {
                **{key: method.get(key) for key in ("kind", "name", "decoding", "samples", "seed")},
                "state": "queued",
                "incumbents": [],
            }
            for method in request["methods"]
        ]
        self.actions: list[list[int] | None] = [None] * len(self.methods)
        self.cancelled = threading.Event()
        self.events: list[Event] = []  # only appended to, so readers need no lock
        self.num_bytes = 0
        self._lock = threading.Lock()

    def emit(self, name: str, **data: Any) -> None:
        """Append an event."""
        event = Event(name, json.dumps(data))
        self.events.append(event)
        self.num_bytes += len(event.data)

    def record(self) -> dict[str, Any]:
        """The job in the form of the API."""
        facts = {key: self.checked[key] for key in ("problem", "instance", "best_known")}
        reference = self._reference()
        methods = [
            {**method, "gap": self._gap(method.get("cost"), reference)} for method in self.methods
        ]
        return {
            "id": self.id,
            "state": self.state,
            **facts,
            "max_runtime": self.request["max_runtime"],
            "methods": methods,
        }

    def _reference(self) -> float | None:
        """The value that gaps refer to: the best-known one, else the best of all methods."""
        if self.checked["best_known"]:
            return float(self.checked["best_known"])
        costs = [method["cost"] for method in self.methods if method.get("cost") is not None]
        best = max if self.checked["maximize"] else min
        return best(costs) if costs else None

    def _gap(self, cost: float | None, reference: float | None) -> float | None:
        if cost is None or not reference:
            return None
        worse = reference - cost if self.checked["maximize"] else cost - reference
        return worse / abs(reference)

    # ---------------------------------------------------------------- running

    def run(self, workers: Workers) -> None:
        """Solves by all methods, one after the other."""
        with self._lock:
            if self.state != "queued":  # cancelled before
                return
            self.state = "running"
        try:
            self.emit("state", state="running")
            for number in range(len(self.methods)):
                self._run_method(number, workers)
            self._finish()
        except BaseException as error:  # clients must see an end in any case
            self.emit("error", message="expected a result, got a failure of the server")
            self._finish("failed")
            if not isinstance(error, Exception):
                raise

    def cancel(self) -> None:
        """Cancels the job: at once if it waits, else its process ends soon."""
        self.cancelled.set()
        with self._lock:
            if self.state == "queued":
                self._finish()

    def _run_method(self, number: int, workers: Workers) -> None:
        method = self.methods[number]
        if self.cancelled.is_set():
            return self._set(number, "cancelled")
        self._set(number, "running")

        def receive(event: tuple[str, dict[str, Any]]) -> None:
            name, data = event
            if name == "incumbent":
                incumbents = method["incumbents"]
                method["cost"] = data["cost"]
                if len(incumbents) >= MAX_INCUMBENTS:
                    incumbents.pop()
                incumbents.append([data["seconds"], data["cost"]])
            self.emit(name, method=number, **data)

        request = self.request
        payload = {
            "problem": self.checked["problem"],
            "instance": self.checked["instance"],
            "method": request["methods"][number],
            "max_runtime": request["max_runtime"],
            "trace": request["trace"],
        }
        try:
            result = workers.run(
                "solve", payload, request["max_runtime"], self.cancelled.is_set, receive
            )
        except RequestError as error:
            method["error"] = error.message
            is_cancelled = self.cancelled.is_set()
            if not is_cancelled:
                self.emit("error", method=number, message=error.message)
            return self._set(number, "cancelled" if is_cancelled else "failed")
        if result is not None:
            self.actions[number] = result["actions"]
            method.update(result["record"])
        self._set(number, "cancelled" if self.cancelled.is_set() else "done")
        return None

    def _set(self, number: int, state: str) -> None:
        self.methods[number]["state"] = state
        self.emit("state", state=self.state, method=number, method_state=state)

    def _finish(self, state: str | None = None) -> None:
        for method in self.methods:
            if method["state"] not in FINAL:
                method["state"] = state or "cancelled"
        if state is None:
            is_done = any(method["state"] == "done" for method in self.methods)
            state = "done" if is_done else "failed"
            state = "cancelled" if self.cancelled.is_set() else state
        self.state = state
        self.emit("state", state=self.state)
        self.emit("done", **self.record())


class Jobs:
    """The jobs of a server.

    Args:
        workers: Where they run.
    """

    def __init__(self, workers: Workers) -> None:
        self.workers, self.limits = workers, workers.limits
        self._jobs: collections.OrderedDict[str, Job] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(self.limits.max_jobs, thread_name_prefix="rl4co-job")

    def submit(self, request: dict[str, Any], checked: dict[str, Any]) -> Job:
        """A new job.

        Args:
            request: The request.
            checked: What the check of the request returned.

        Raises:
            RequestError: The queue is full.
        """
        job = Job(request, checked)
        with self._lock:
            self._require_place()
            self._forget_oldest()
            self._jobs[job.id] = job
            job.emit("state", state="queued")
            self._threads.submit(job.run, self.workers)
        return job

    def require_place(self) -> None:
        """Raise :class:`RequestError` if the queue is full."""
        with self._lock:
            self._require_place()

    def _require_place(self) -> None:
        unfinished = sum(job.state not in FINAL for job in self._jobs.values())
        limits = self.limits
        if unfinished >= limits.max_jobs + limits.max_queue:
            raise RequestError(
                f"expected at most {limits.max_queue} jobs that wait, got more; try again when "
                "some have ended",
                429,
            )

    def _forget_oldest(self) -> None:
        """Removes finished jobs beyond the limits on their number and on their events."""
        count = num_bytes = 0
        for key, job in reversed(list(self._jobs.items())):
            if job.state in FINAL:
                count += 1
                num_bytes += job.num_bytes
                if count >= self.limits.max_kept or num_bytes > self.limits.max_kept_bytes:
                    del self._jobs[key]

    def get(self, job_id: str) -> Job:
        """The job with an id."""
        job = self._jobs.get(job_id)
        if job is None:
            raise RequestError(
                f"expected the id of a job, got {job_id[:60]!r}; results are kept for the last "
                f"{self.limits.max_kept} jobs",
                404,
            )
        return job

    def shutdown(self) -> None:
        """Cancel all jobs and end their processes."""
        for job in list(self._jobs.values()):
            job.cancelled.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.workers.shutdown()
