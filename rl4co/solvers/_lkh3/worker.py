"""LKH-3 as a program of its own (Helsgaun, 2017): files in, tours out; imports no torch.

Report: http://webhotel4.ruc.dk/~keld/research/LKH-3/LKH-3_REPORT.pdf. It solves routing problems as
tours through as many copies of the depot as there are vehicles, and minimises penalties first.
Every improvement is written to a separate file, so the best solution survives when the program is
killed, by its time limit or otherwise.

| problem | TYPE | remarks |
|---|---|---|
| tours | TSP, ATSP | |
| pickups before their deliveries on one tour | PDTSP | |
| loads from the depot | CVRP | symmetric lengths; routes end there; `DISTANCE` limits them |
| ... with time windows, open or asymmetric | CVRPTW | too long a route comes home too late |
| ... and loads to the depot | VRPMPDTW | every vehicle drives, spare ones to idle nodes |

Open routes return at no cost. Linehauls come before backhauls as the legs back cost too much.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rl4co.core.errors import RL4COError
from rl4co.solvers._job_report import is_cancelled, record_cost, report_incumbent
from rl4co.solvers._problem import INFINITY, Array, Route, RoutingProblem

#: Length of a leg that must not be used. LKH-3 accepts nothing above INT_MAX / 2 / 100.
FORBIDDEN = 10_000_000
#: End of the windows of nodes that have none.
ALWAYS = 2_000_000_000
#: Vehicles beyond the fewest that loads need: so many, and this share of those.
SPARE, SPARE_SHARE = 2, 0.25
#: Seconds between two reads of the tours.
POLL_INTERVAL = 0.05
#: Lines of LKH-3's output that an error shows.
LAST_LINES = 5

_PROBLEM, _PARAMETERS, _START, _TOURS = "problem.vrp", "problem.par", "start.tour", "tour.{}"


def solve_problem(
    problem: RoutingProblem,
    max_runtime: float,
    executable: str,
    folder: str,
    runs: int,
    seed: int,
    start: Sequence[Route] | None = None,
) -> tuple[list[Route], float] | None:
    """Routes and their cost; None if LKH-3 found no feasible solution.

    Args:
        problem: In integers, see :mod:`rl4co.solvers._lkh3.solver`.
        max_runtime: Seconds after which the program is ended.
        executable: Path of LKH-3.
        folder: Folder for its files; the caller removes it.
        runs: Independent runs, of which the best counts.
        seed: Seed of LKH-3.
        start: Solution to start from.
    """
    if len(problem.customers) < 2:  # LKH-3 rejects fewer than three nodes
        routes = [Route(0, list(problem.customers))]
        return routes, problem.cost(routes)
    place = Path(tempfile.mkdtemp(dir=folder))
    task = Task(problem)
    (place / _PROBLEM).write_text(task.problem_text())
    parameters: dict[str, object] = {
        "PROBLEM_FILE": _PROBLEM,
        # LKH-3 puts the cost in place of the sign. A trial writes the first file, a run the second.
        "OUTPUT_TOUR_FILE": _TOURS.format("$"),
        "TOUR_FILE": _TOURS.format("run.$"),
        "MTSP_MIN_SIZE": 0,
        "RUNS": runs,
        "SEED": seed,
        "TIME_LIMIT": max_runtime,
        "TRACE_LEVEL": 1,
    }
    if start is not None:
        (place / _START).write_text(task.tour_text(start))
        parameters["INITIAL_TOUR_FILE"] = _START
    # The first line is short for Helsgaun's settings for problems with constraints.
    lines = ["SPECIAL", *(f"{key} = {value}" for key, value in parameters.items()), ""]
    (place / _PARAMETERS).write_text("\n".join(lines))
    best = Incumbent(task, place)
    output = _run(executable, place, max_runtime, best.update)
    if best.routes is None and output is not None:
        raise RL4COError(f"expected tours of {executable}, got none and the output:\n{output}")
    return None if best.routes is None else (best.routes, best.cost)


def _run(
    executable: str, place: Path, max_runtime: float, update: Callable[[], None]
) -> str | None:
    """Runs LKH-3 and reads its tours regularly; returns the end of its output if it failed."""
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            [executable, _PARAMETERS],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        guard = _start_guard(process.pid)
        until = time.monotonic() + max_runtime
        try:
            while process.poll() is None and time.monotonic() < until and not is_cancelled():
                time.sleep(POLL_INTERVAL)
                update()
            code = process.poll()
        finally:
            _kill_group(process)
            if guard is not None:
                guard.kill()
                guard.communicate()
    update()
    if not code:
        return None
    text = (place / "output").read_text(errors="replace")
    return "\n".join([f"exit code {code}", *text.splitlines()[-LAST_LINES:]])


def _start_guard(session: int) -> subprocess.Popen[bytes] | None:
    """A process that ends a session as soon as this process ends, whatever ended it.

    The pipe between them closes then. The signal that Linux sends would reach the program alone,
    and not what it has started: it may be a script.
    """
    if os.name != "posix":
        return None
    command = ["sh", "-c", f"read -r _; kill -KILL -{session}"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a program that leads a session, and what it has started."""
    if sys.platform != "win32":
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


class Incumbent:
    """The best of the tours in a folder; every improvement is reported.

    Attributes:
        routes: The routes; None: there is no feasible tour yet.
        cost: Their cost.
    """

    def __init__(self, task: Task, place: Path) -> None:
        self.task, self.place = task, place
        self.routes: list[Route] | None = None
        self.cost = INFINITY
        self._seen: set[Path] = set()

    def update(self) -> None:
        """Reads tours that are new, and written completely."""
        for file in set(self.place.glob(_TOURS.format("*"))) - self._seen:
            words = file.read_text().partition("TOUR_SECTION")[2].split()
            if "-1" in words:
                self._seen.add(file)
                self._take(self.task.routes([int(word) - 1 for word in words[: words.index("-1")]]))

    def _take(self, routes: list[Route]) -> None:
        cost = self.task.problem.cost(routes)
        if cost < self.cost and all(map(self.task.problem.feasible, routes)):
            self.routes, self.cost = routes, cost
            record_cost(cost)
            report_incumbent((routes, cost))


class Task:
    """A routing problem in the terms of LKH-3, whose nodes count from 1.

    After the nodes of the problem there may be idle ones at the location of the depot, which spare
    vehicles visit. They only lead back to the depot.
    """

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.kind = _find_type(problem)
        self.vehicles = _count_vehicles(problem)
        self.num_idle = self.vehicles - 1 if self.kind == "VRPMPDTW" else 0
        self.size = len(problem.length) + self.num_idle

    # ---------------------------------------------------------------- texts

    def problem_text(self) -> str:
        """The file with the problem."""
        capacity = self.problem.vehicles[0].capacity
        header: dict[str, object] = {"NAME": "problem", "TYPE": self.kind, "DIMENSION": self.size}
        if self.vehicles > 1:
            header["VEHICLES"] = self.vehicles
        if self.kind in ("CVRP", "CVRPTW", "VRPMPDTW"):
            header["CAPACITY"] = ALWAYS if capacity == INFINITY else int(capacity)
        if self.kind in ("CVRP", "VRPMPDTW") and self._limit != INFINITY:
            header["DISTANCE"] = int(self._limit)
        header |= {"EDGE_WEIGHT_TYPE": "EXPLICIT", "EDGE_WEIGHT_FORMAT": "FULL_MATRIX"}
        lines = [f"{key} : {value}" for key, value in header.items()]
        lines += ["EDGE_WEIGHT_SECTION", *(" ".join(map(str, row)) for row in self._weights())]
        for section, values in self._sections().items():
            rows = (" ".join(map(str, row)) for row in values)
            lines += [section, *(f"{node} {row}" for node, row in enumerate(rows, start=1))]
        if self.kind not in ("TSP", "ATSP"):
            lines += ["DEPOT_SECTION", "1", "-1"]
        return "\n".join([*lines, "EOF", ""])

    def tour_text(self, routes: Sequence[Route]) -> str:
        """A file with a tour: the routes, and those of spare vehicles."""
        idle = list(range(len(self.problem.length) + 1, self.size + 1))
        parts = [[node + 1 for node in route.nodes] for route in routes if route.nodes]
        while idle and len(parts) < self.vehicles:
            parts.append([idle.pop()])
        parts[-1] += idle
        parts += [[]] * (self.vehicles - len(parts))
        depots = [1, *range(self.size + 1, self.size + self.vehicles)]
        tour = [x for depot, part in zip(depots, parts, strict=True) for x in (depot, *part)]
        lines = ["TYPE : TOUR", f"DIMENSION : {len(tour)}", "TOUR_SECTION", *map(str, tour)]
        return "\n".join([*lines, "-1", "EOF", ""])

    def routes(self, tour: Sequence[int]) -> list[Route]:
        """Routes of a tour with nodes from 0; those after the last one are depots."""
        first = tour.index(0)
        parts: list[list[int]] = [[]]
        for node in (*tour[first + 1 :], *tour[:first]):
            if node >= self.size:
                parts.append([])
            elif node < len(self.problem.length):
                parts[-1].append(node)
        return [Route(0, nodes) for nodes in parts if nodes]

    # ---------------------------------------------------------------- numbers

    @property
    def _limit(self) -> float:
        return self.problem.vehicles[0].max_length

    def _weights(self) -> list[list[int]]:
        """Lengths `[size, size]`."""
        problem, real = self.problem, len(self.problem.length)
        weights = np.full((self.size, self.size), FORBIDDEN, dtype=np.int64)
        weights[:real, :real] = problem.length
        weights[:real, real:] = weights[:real, :1]
        weights[real:, real:] = weights[real:, 0] = 0
        if problem.deliveries_first and problem.pickup is not None and problem.delivery is not None:
            has_pickup, has_delivery = problem.pickup > 0, problem.delivery > 0
            weights[:real, :real][np.ix_(has_pickup, has_delivery)] = FORBIDDEN
        if problem.vehicles[0].end is None:
            weights[:, 0] = weights[:, real:] = 0
        np.fill_diagonal(weights, 0)
        table: list[list[int]] = weights.tolist()
        return table

    def _sections(self) -> dict[str, list[tuple[int, ...]]]:
        """Section → a row for each node."""
        deliveries, pickups = (
            self._of_nodes(x) for x in (self.problem.delivery, self.problem.pickup)
        )
        if self.kind == "CVRP":
            return {"DEMAND_SECTION": [(x,) for x in deliveries]}
        service, windows = self._of_nodes(self.problem.service), self._windows()
        if self.kind == "CVRPTW":
            return {
                "DEMAND_SECTION": [(x,) for x in deliveries],
                "SERVICE_TIME_SECTION": [(x,) for x in service],
                "TIME_WINDOW_SECTION": [*windows],
            }
        if self.kind == "VRPMPDTW":
            columns = zip(windows, service, pickups, deliveries, strict=True)
            return {
                "PICKUP_AND_DELIVERY_SECTION": [
                    (0, *window, time, up, down) for window, time, up, down in columns
                ]
            }
        if self.kind == "PDTSP":
            siblings = {first: (1, 0, last + 1) for first, last in self.problem.orders}
            siblings |= {last: (-1, first + 1, 0) for first, last in self.problem.orders}
            pairs = [siblings.get(node, (0, 0, 0)) for node in range(self.size)]
            return {
                "PICKUP_AND_DELIVERY_SECTION": [
                    (load, 0, ALWAYS, 0, *partners) for load, *partners in pairs
                ]
            }
        return {}

    def _of_nodes(self, values: Array | None) -> list[int]:
        """One number for each node, 0 for idle ones."""
        numbers = [] if values is None else [int(value) for value in values]
        return numbers + [0] * (self.size - len(numbers))

    def _windows(self) -> list[tuple[int, int]]:
        problem = self.problem
        if problem.windows is None:
            windows = []
            home = ALWAYS if self._limit == INFINITY else int(self._limit)
        else:
            windows = [(int(opening), int(closing)) for opening, closing in problem.windows]
            home = ALWAYS if problem.vehicles[0].end is None else windows[0][1]
        windows += [(0, ALWAYS)] * (self.size - len(windows))
        return [(windows[0][0], home), *windows[1:]]


def _find_type(problem: RoutingProblem) -> str:
    """The problem type in the terms of LKH-3."""
    vehicle, is_symmetric = problem.vehicles[0], (problem.length == problem.length.T).all()
    if problem.orders:
        return "PDTSP"
    if problem.pickup is not None:
        return "VRPMPDTW"
    if problem.windows is not None:
        return "CVRPTW"
    if problem.delivery is None and vehicle.count == 1 and vehicle.max_length == INFINITY:
        return "TSP" if is_symmetric else "ATSP"
    return "CVRP" if is_symmetric and vehicle.end is not None else "CVRPTW"


def _count_vehicles(problem: RoutingProblem) -> int:
    """As many as can be useful: all if times or lengths are limited, else some to spare."""
    vehicle = problem.vehicles[0]
    most = min(vehicle.count, len(problem.customers))
    if problem.windows is not None or vehicle.max_length != INFINITY:
        return most
    loads = (problem.delivery, problem.pickup)
    sums = [float(load.sum()) for load in loads if load is not None]
    fewest = max((-(-total // vehicle.capacity) for total in sums), default=1.0)
    return max(1, min(most, int(fewest * (1 + SPARE_SHARE)) + SPARE))
