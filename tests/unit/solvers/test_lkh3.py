"""LKH-3 as an executable: the files that it gets, the tours that it gives, and its end.

The program here is a small one that reads the same files and tries all solutions by LKH-3's rules
(the penalties of its types), so what the files say is tested along with their form.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import ConfigError, RL4COError, UnsupportedError
from rl4co.envs import get_env
from rl4co.solvers._lkh3.worker import Task
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers._worker_pool import WorkerPool
from tests.commands import Commands
from tests.unit.instance_texts import VRP

ENUMERATE = """
import itertools, re

settings = dict(line.split(" = ") for line in open(sys.argv[1]).read().splitlines() if "=" in line)
text = open(settings["PROBLEM_FILE"]).read()
header = dict(re.findall(r"^(\\w+) : (.+)$", text, re.M))
sections = {}
for name, body in re.findall(r"^(\\w+_SECTION)\\n((?:[-\\d. ]+\\n)+)", text, re.M):
    sections[name] = [[int(word) for word in line.split()] for line in body.splitlines()]
kind, size = header["TYPE"], int(header["DIMENSION"])
weights = sections["EDGE_WEIGHT_SECTION"]
assert len(weights) == size and all(len(row) == size for row in weights)
fleet, capacity = int(header.get("VEHICLES", 1)), int(header.get("CAPACITY", 0))
limit = int(header.get("DISTANCE", 10**12))

def column(section, place, default):
    rows = sections.get(section)
    return [default] * size if rows is None else [row[place] for row in sorted(rows)]

pairs = "PICKUP_AND_DELIVERY_SECTION"
demand = column("DEMAND_SECTION", 1, 0)
service = column("SERVICE_TIME_SECTION", 1, 0) if kind != "VRPMPDTW" else column(pairs, 4, 0)
where = ("TIME_WINDOW_SECTION", 1, 2) if kind != "VRPMPDTW" else (pairs, 2, 3)
opening, closing = column(where[0], where[1], 0), column(where[0], where[2], 10**12)
pickup, delivery = column(pairs, 5, 0), column(pairs, 6, 0)

def penalty(route):
    total, clock, before = 0, opening[0], 0
    load = sum(delivery[node] for node in route) if kind == "VRPMPDTW" else 0
    total += max(0, load - capacity) if kind == "VRPMPDTW" else 0
    for node in [*route, 0]:
        clock += weights[before][node]
        before = node
        if node:
            clock = max(clock, opening[node])
        total += max(0, clock - closing[node])
        if kind == "VRPMPDTW":
            load += pickup[node] - delivery[node]
            total += max(0, load - capacity)
        elif kind == "PDTSP":
            total += bool(pickup[node]) and pickup[node] - 1 not in route[:route.index(node)]
        clock += service[node] if node else 0
    if kind in ("CVRP", "CVRPTW"):
        total += max(0, sum(demand[node] for node in route) - capacity)
    return total + (max(0, clock - limit) if kind in ("CVRP", "VRPMPDTW") else 0)

idle = [n for n in range(1, size) if kind == "VRPMPDTW" and not pickup[n] and not delivery[n]]
others = [n for n in range(1, size) if n not in idle]
best = None
for order in itertools.permutations(others):
    for cuts in itertools.product([False, True], repeat=len(others) - 1):
        routes = [[order[0]]]
        for node, cut in zip(order[1:], cuts):
            if cut:
                routes.append([])
            routes[-1].append(node)
        spare = list(idle)
        while spare and len(routes) < fleet:
            routes.append([spare.pop()])
        routes[-1] += spare
        if len(routes) > fleet:
            continue
        cost = sum(weights[i][j] for r in routes for i, j in zip([0, *r], [*r, 0]))
        found = (sum(map(penalty, routes)), cost, routes)
        best = min(best or found, found)
lost, cost, routes = best
routes += [[]] * (fleet - len(routes))
depots = [1, *range(size + 1, size + fleet)]
nodes = [n for depot, route in zip(depots, routes) for n in (depot, *(x + 1 for x in route))]
name = settings["OUTPUT_TOUR_FILE"].replace("$", str(cost))
if not lost:
    head = f"NAME : problem.{cost}.tour\\nTYPE : TOUR\\nDIMENSION : {len(nodes)}\\nTOUR_SECTION\\n"
    open(name, "w").write(head + "".join(f"{node}\\n" for node in nodes) + "-1\\nEOF\\n")
"""

#: Writes a tour, half of a better one and its own number, and then works for ever.
LINGER = """
import os, time
open("tour.9", "w").write("TYPE : TOUR\\nTOUR_SECTION\\n1 2 6 3 7 4 8 5 -1\\nEOF\\n")
open("tour.8", "w").write("TYPE : TOUR\\nTOUR_SECTION\\n1 2")
open(os.environ["LINGER"], "w").write(str(os.getpid()))
time.sleep(600)
"""


def program(path: Path, text: str) -> str:
    """An executable in Python that starts quickly."""
    path.write_text(f"#!{sys.executable} -S\nimport sys\n{text}")
    path.chmod(0o755)
    return str(path)


def behind_script(folder: Path) -> str:
    """A script that starts a program which works for ever."""
    script = folder / "script"
    script.write_text(f'#!/bin/sh\n{program(folder / "slow", LINGER)} "$@"\nexit $?\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="module")
def lkh3(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that gives the best solution of tiny problems."""
    return program(tmp_path_factory.mktemp("program") / "LKH", ENUMERATE)


def ends(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process is gone soon."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


# ---------------------------------------------------------------- solutions


@pytest.mark.parametrize(
    ("problem", "variant"),
    [("tsp", None), ("cvrp", None), ("pdp", None), ("cvrptw", None)]
    + [("mtvrp", variant) for variant in ("ovrpl", "vrpl", "vrptw", "ovrpb", "vrpbl", "ovrpbtw")],
)
def test_best_solutions_come_back(lkh3: str, problem: str, variant: str | None):
    """Of every kind of problem that LKH-3 has a type for, as good as PyVRP's."""
    settings = {"num_loc": 4, **({} if variant is None else {"variant_preset": variant})}
    env = get_env(problem, generator_params=settings)
    torch.manual_seed(3)
    instances = env.generate(2).apply(lambda x: x.double() if x.is_floating_point() else x)
    _, costs = env.solve(instances, solver="lkh", executable=lkh3, max_runtime=60.0, num_procs=2)
    _, best = env.solve(instances, solver="pyvrp", max_runtime=10.0, max_iterations=50)
    torch.testing.assert_close(costs, best, rtol=1e-5, atol=0.0)


def test_a_start(lkh3: str):
    """The routes, and idle nodes or empty routes for the vehicles that are not needed."""
    loads = {"delivery": np.array([0.0, 2.0, 3.0]), "pickup": np.array([0.0, 1.0, 0.0])}
    fleet = (Vehicle(count=3, capacity=5.0, max_length=9.0),)
    mixed = Task(RoutingProblem(np.ones((3, 3)), (1, 2), fleet, **loads))
    assert mixed.tour_text([Route(0, [2, 1])]).split()[7:-2] == ["1", "3", "2", "5", "4"]
    assert mixed.routes([2, 4, 3, 0, 1]) == [Route(0, [1, 2])]
    plain = Task(RoutingProblem(np.ones((3, 3)), (1, 2), fleet, delivery=loads["delivery"]))
    assert plain.tour_text([Route(0, [2, 1])]).split()[7:-2] == ["1", "3", "2", "4"]
    env = get_env("cvrp", generator_params={"num_loc": 4})
    instances = env.generate(1)
    start, before = env.solve(instances, solver="random")
    _, after = env.solve(instances, solver="lkh", executable=lkh3, initial=start)
    assert after <= before


def test_the_number_of_vehicles(lkh3: str):
    """Two customers far from each other: two routes for 4, or one for 1 + 10 + 1."""
    env = get_env("cvrp", generator_params={"num_loc": 2})
    instances = env.generate(1)
    instances["cost_matrix"] = torch.tensor([[[0.0, 1, 1], [1, 0, 10], [1, 10, 0]]])
    instances["demand"] = torch.full((1, 2), 0.25)
    for limit, cost in ((None, 4.0), (1, 12.0)):
        _, costs = env.solve(instances, solver="lkh", executable=lkh3, max_vehicles=limit)
        assert costs.tolist() == [cost]


def test_what_it_cannot_solve(lkh3: str):
    """The reason, before a program is started."""
    for problem, settings, reason in (
        ("mtvrp", {"variant_preset": "vrpltw"}, "time windows and a longest route together"),
        ("op", {}, "routes that visit all customers"),
        ("svrp", {}, "vehicles of one kind"),
        ("shpp", {}, "vehicles of one kind, with one depot"),
    ):
        env = get_env(problem, generator_params={"num_loc": 4, **settings})
        with pytest.raises(UnsupportedError, match=f"LKH-3 cannot solve .*{reason}"):
            env.solve(env.generate(1), solver="lkh", executable=lkh3)


# ---------------------------------------------------------------- the program's life


def test_a_program_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is ended, also behind a script; its last complete tour counts, a route per customer."""
    monkeypatch.setenv("LINGER", str(tmp_path / "pid"))
    slow = behind_script(tmp_path)
    env = get_env("cvrp", generator_params={"num_loc": 4})
    with WorkerPool() as pool, pool.running() as reports:
        actions, costs = env.solve(env.generate(1), solver="lkh", executable=slow, max_runtime=2.0)
    (report,) = reports
    assert report.seconds < 10.0  # preparing the problem is part of its two seconds
    ((seconds, cost),) = report.incumbents  # noted when it was written, not at the end
    assert seconds < report.seconds - 0.2 and cost == pytest.approx(float(costs), rel=1e-4)
    assert [node for node in actions[0].tolist() if node] == [1, 2, 3, 4]
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_program_ends_with_who_started_it(tmp_path: Path):
    """Even if that is killed, and the program is behind a script."""
    pid, slow = tmp_path / "pid", behind_script(tmp_path)
    code = (
        "import numpy as np; from rl4co.solvers._lkh3.worker import solve_problem as solve\n"
        "from rl4co.solvers._problem import RoutingProblem, Vehicle\n"
        "demand = np.array([0, 1, 1, 1, 1]); fleet = (Vehicle(count=4, capacity=1),)\n"
        "problem = RoutingProblem(np.ones((5, 5)), (1, 2, 3, 4), fleet, delivery=demand)\n"
        f"solve(problem, 600, {slow!r}, {str(tmp_path)!r}, 1, 1)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "LINGER": str(pid)})
    until = time.monotonic() + 60
    while not (pid.is_file() and pid.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ends(int(pid.read_text()))


def test_a_program_that_fails(tmp_path: Path):
    """What it said; and what to do about a file that is no program."""
    broken = program(tmp_path / "broken", "sys.exit('PROBLEM_FILE: unknown keyword')")
    env = get_env("cvrp", generator_params={"num_loc": 4})
    with pytest.raises(RL4COError, match="got none and the output:\nexit code 1\nPROBLEM_FILE"):
        env.solve(env.generate(1), solver="lkh", executable=broken)
    with pytest.raises(ConfigError, match="which cannot be run; build it from"):
        env.solve(env.generate(1), solver="lkh", executable=str(tmp_path / "nothing"))


# ---------------------------------------------------------------- the command


def test_command(lkh3: str, command: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`--lkh-executable`, the variable, and the message where there is neither."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.vrp").write_text(VRP)
    Path("one.sol").write_text("Route #1: 1 4\nRoute #2: 2\nRoute #3: 3\n")
    os.symlink(lkh3, "LKH")
    neither, variable = {"RL4CO_LKH": ""}, {"RL4CO_LKH": lkh3}
    solve = ("solve", "tiny.vrp", "--solver", "lkh", "--json")
    rejected = command(*solve, env=neither)
    assert rejected.code == 2 and "name one with executable=..., --lkh-exec" in rejected.error
    found = command(*solve, "--lkh-executable", "./LKH", env=neither)
    assert found.json["results"][0]["cost"] == 32, found
    polish = ("--initial", "one.sol", "--polish", "9", "--polish-solver", "lkh", "--json")
    (record,) = command("solve", "tiny.vrp", *polish, env=variable).json["results"]
    assert (record["objective_before"], record["objective"]) == (34, 32)
    problems = ("tiny.vrp", "pdp:4:size=1", "mtvrp:4:size=1")
    benchmark = ("benchmark", *problems, "-m", "lkh:9s", "--no-plots", "--json")
    table = command(*benchmark, "-o", "solved", env=variable)
    assert table.code == 0, table
    assert [row["problem"] for row in table.json["rows"]] == ["cvrp", "pdp", "mtvrp"]
    failed = command(*benchmark, "-o", "failed", env=neither)
    assert failed.code == 1, failed
    assert all("without an executable of LKH-3" in row["error"] for row in failed.json["rows"])
