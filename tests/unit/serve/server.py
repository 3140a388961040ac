"""A playground server in a process of its own, for tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch

from rl4co.models import AttentionModelPolicy, L2DPolicy

#: Names of the models that `save_models` writes.
MODELS = {"tsp": "am-tsp8", "cvrp": "am-cvrp8", "pdp": "am-pdp8", "jssp": "l2d-jssp9"}


def save_models(folder: Path) -> None:
    """Small untrained models."""
    torch.manual_seed(0)
    small = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1, "feedforward_hidden": 16}
    for problem in ("tsp", "cvrp", "pdp"):
        AttentionModelPolicy(env_name=problem, **small).save_pretrained(folder / MODELS[problem])
    policy = L2DPolicy(embed_dim=16, num_encoder_layers=1, env_name="jssp")
    policy.save_pretrained(folder / MODELS["jssp"])


class Server:
    """A server and a client of it.

    Args:
        models: Folder of models.
        options: Options of the command.
    """

    def __init__(self, models: Path, *options: str) -> None:
        environment = {**os.environ, "RL4CO_MODELS": str(models)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rl4co.cli", "serve", "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        address = re.search(r"http://[\d.]+:\d+", line)
        assert address, line + self.process.stderr.read()
        self.url = address[0]
        self.client = httpx.Client(base_url=self.url, timeout=100)

    def post(self, path: str, **body: Any) -> httpx.Response:
        """The response to a body in JSON."""
        return self.client.post(f"/api{path}", json=body)

    def random(self, problem: str, size: int, **options: Any) -> dict[str, Any]:
        """A random instance."""
        body = {"problem": problem, "size": size, "seed": 1, "options": options}
        response = self.post("/instances/random", **body)
        assert response.status_code == 200, response.text
        return response.json()["instance"]

    def solve(self, problem: str, instance: dict[str, Any], *methods: str, **more: Any) -> str:
        """The id of a new job; methods are solvers, or `model/decoding`."""
        rows = []
        for method in methods:
            name, slash, decoding = method.partition("/")
            kind = {"kind": "model", "decoding": decoding} if slash else {"kind": "solver"}
            rows.append({**kind, "name": name})
        response = self.post("/solve", problem=problem, instance=instance, methods=rows, **more)
        assert response.status_code == 202, response.text
        return response.json()["id"]

    def events(self, job: str, after: int | None = None) -> Iterator[tuple[int, str, Any]]:
        """Id, name and data of the events of a job until it ends."""
        headers = {} if after is None else {"last-event-id": str(after)}
        with self.client.stream("GET", f"/api/jobs/{job}/events", headers=headers) as stream:
            fields: dict[str, str] = {}
            for line in stream.iter_lines():
                key, _, value = line.partition(": ")
                if line:
                    fields[key] = value
                elif "event" in fields:
                    yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                    fields = {}

    def finish(self, job: str) -> dict[str, Any]:
        """The job when it has ended."""
        *_, (_, name, data) = self.events(job)
        assert name == "done"
        return data

    def close(self) -> None:
        """End the server."""
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()


def descendants(pid: int) -> set[int]:
    """Numbers of all processes below a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return below - {pid}


def is_running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition: Any, seconds: float) -> bool:
    """Whether a condition holds within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
