"""Many clients at the same time: `python -m tests.unit.serve.load --clients 32 --seconds 60`.

Every client draws instances, solves them by models and solvers, follows the events, saves results
and cancels some jobs. Exits with an error if an answer has another status than the documented ones,
if a job does not end, if a solver's process remains, or if memory grows without a bound.
"""

from __future__ import annotations

import argparse
import collections
import random
import tempfile
import threading
import time

from pathlib import Path

import httpx

from tests.unit.serve.server import MODELS, Server, descendants, is_running, save_models

#: What clients solve: problem, size, methods.
TASKS = (
    ("tsp", 20, [{"kind": "model", "name": MODELS["tsp"]}, {"kind": "solver", "name": "ils"}]),
    ("cvrp", 20, [{"kind": "model", "name": MODELS["cvrp"], "decoding": "sampling"}]),
    ("cvrp", 20, [{"kind": "solver", "name": "pyvrp"}]),
    ("jssp", 5, [{"kind": "solver", "name": "cpsat"}]),
)


def megabytes(pid: int) -> float:
    """Resident memory of a process and of all processes below it."""
    pages = 0
    for each in (pid, *descendants(pid)):
        try:
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * 4096 / 2**20


class Client:
    """One client.

    Args:
        server: The server.
        statuses: Counts of all statuses.
        number: Seed of its choices.
    """

    def __init__(self, server: Server, statuses: collections.Counter[str], number: int) -> None:
        self.http = httpx.Client(base_url=f"{server.url}/api", timeout=120)
        self.statuses, self.random = statuses, random.Random(number)
        self.ended: collections.Counter[str] = collections.Counter()

    def ask(self, method: str, path: str, **options: object) -> httpx.Response:
        response = self.http.request(method, path, **options)  # type: ignore[arg-type]
        self.statuses[f"{method} {response.status_code}"] += 1
        return response

    def run(self, end: float) -> None:
        while time.monotonic() < end:
            problem, size, methods = self.random.choice(TASKS)
            body = {"problem": problem, "size": size, "seed": self.random.randrange(1000)}
            drawn = self.ask("POST", "/instances/random", json=body)
            if drawn.status_code != 200:
                time.sleep(1)
                continue
            body = {**drawn.json(), "methods": methods, "max_runtime": 0.5, "trace": True}
            started = self.ask("POST", "/solve", json=body)
            if started.status_code != 202:
                time.sleep(1)
                continue
            self.follow(started.json()["id"])

    def follow(self, job: str) -> None:
        if self.random.random() < 0.2:
            self.ask("DELETE", f"/jobs/{job}")
        with self.http.stream("GET", f"/jobs/{job}/events") as events:
            names = [line for line in events.iter_lines() if line.startswith("event: ")]
        assert names[-1] == "event: done", names[-3:]
        result = self.ask("GET", f"/jobs/{job}").json()
        self.ended[result["state"]] += 1
        if result["state"] == "done":
            self.ask("GET", f"/jobs/{job}/result?format=csv")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save_models(Path(folder))
        server = Server(Path(folder))
        try:
            measure(server, options.clients, options.seconds)
        finally:
            server.close()


def measure(server: Server, num_clients: int, seconds: float) -> None:
    """Runs the clients and checks what they see."""
    server.random("tsp", 5)  # the library is imported
    statuses: collections.Counter[str] = collections.Counter()
    clients = [Client(server, statuses, number) for number in range(num_clients)]
    end = time.monotonic() + seconds
    failures: list[BaseException] = []

    def run(client: Client) -> None:
        try:
            client.run(end)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(client,)) for client in clients]
    memory = [megabytes(server.process.pid)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        memory.append(megabytes(server.process.pid))
    time.sleep(3)
    ended = sum((client.ended for client in clients), collections.Counter())
    started = statuses["POST 202"]
    print(f"statuses: {dict(statuses)}\njobs: {started} started, ended: {dict(ended)}")
    half = len(memory) // 2
    print(
        f"MiB: {memory[0]:.0f} at first, most in each half {max(memory[:half]):.0f}, "
        f"{max(memory[half:]):.0f}"
    )
    below = descendants(server.process.pid)
    solvers = [
        pid
        for pid in below
        if is_running(pid) and b"rl4co.serve" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    print(f"processes: {len(below)} below the server, {len(solvers)} of them solvers")
    assert not failures, failures
    assert sum(ended.values()) == started > 0
    assert {text.split()[1] for text in statuses} <= {"200", "202", "429"}
    assert max(memory[half:]) < 1.3 * max(memory[:half]) + 100


if __name__ == "__main__":
    main()
