"""`rl4co solve`: nothing in a file is ignored, and why there is no solution."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any

import pytest

from typer.testing import CliRunner

from rl4co.cli import app
from tests.unit.instance_texts import VRP
from tests.unit.test_cli import run_process

SQUARE = [[0, 0], [0, 3], [4, 3], [4, 0], [2, 2]]
NAMES = ["depot", "Schmidt", "Meier", "Huber", "Wolf"]
#: Three customers with more than half of a load each, for two vehicles.
SCARCE = {"coordinates": SQUARE, "nodes": NAMES, "demand": [0, 6, 6, 6, 1], "capacity": 10}
#: Three customers at the same time, an hour's drive apart, for two vehicles. From Huber, who is
#: served first, 30 to Meier after 10 of service: 60 + 10 + 30 is 100, and his window ends at 75.
HURRY = {
    "coordinates": [[0, 0], [0, 30], [40, 30], [40, 0], [20, 20]],
    "nodes": NAMES,
    "demand": [0, 1, 1, 1, 1],
    "capacity": 10,
    "vehicles": 2,
    "time_windows": [[0, 480], [60, 70], [60, 75], [60, 65], [0, 480]],
    "service_times": [0, 10, 10, 10, 10],
}
HEAVY = "# capacity: 10\nnode,x,y,demand\ndepot,0,0,0\nSchmidt,0,3,12\nMeier,4,3,5\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, fields: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps(fields))
    return name


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["solve", *arguments], env={"COLUMNS": "200"})


def refusal(*arguments: str) -> str:
    """The one line on stderr of a command that gives nothing else."""
    result = run(*arguments)
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert result.stderr.count("\n") == 1
    return str(result.stderr)


@pytest.mark.usefixtures("here")
def test_the_command():
    """In a process of its own: limits, impossible data, conflicts, odd values, all at once."""
    pytest.importorskip("ortools")
    fits = {"coordinates": SQUARE, "demand": [0, 2, 3, 2, 1], "capacity": 8}
    write("one.json", {**fits, "vehicles": 1})
    write("three.json", {**SCARCE, "vehicles": 1})
    write("scarce.json", {**SCARCE, "vehicles": 2})
    write("hurry.json", HURRY)
    Path("heavy.csv").write_text(HEAVY)
    Path("odd.vrp").write_text(VRP)
    Path("odd.sol").write_text("Route #1: 1 2\nRoute #2: 3\nRoute #3: 4\nCost 40\n")
    result = run_process("solve", ".", "--solver", "insertion", "--json")
    assert result.returncode == 1, result.stderr
    found = {Path(r["file"]).name: r for r in json.loads(result.stdout)["results"]}
    errors = {name: r["error"]["message"] for name, r in found.items() if "error" in r}
    assert (found["one.json"]["vehicles"], found["one.json"]["max_vehicles"]) == (1, 1)
    assert errors["three.json"].startswith(
        "three.json: expected routes of at most 1 vehicle, got a proof that there are none: "
    )
    assert errors["scarce.json"] == (
        "scarce.json: expected routes of at most 2 vehicles, got a proof that there are none: "
        "customer Schmidt (demand 6), customer Meier (demand 6) and customer Huber (demand 6), "
        "with a total demand of 18, cannot all be served by 2 vehicles within a capacity of 10; "
        "there are some with 3 vehicles (--vehicles 3), with a capacity of 12 (2 more) or without "
        "customer Schmidt"
    )
    assert errors["hurry.json"] == (
        "hurry.json: expected routes of at most 2 vehicles, got a proof that there are none: "
        "customer Schmidt (60 to 70), customer Meier (60 to 75) and customer Huber (60 to 65) "
        "cannot all be served by 2 vehicles within their time windows; there are some with 3 "
        "vehicles (--vehicles 3), with a time window of customer Meier that ends at 100 (25 later) "
        "or without customer Schmidt"
    )
    assert errors["heavy.csv"] == (
        "heavy.csv: expected customers that a vehicle can serve, got customer Schmidt: demand 12 "
        "above the capacity 10 of every vehicle; correct the data"
    )
    assert "a new best solution, unless" in found["odd.vrp"]["remarks"][0]
    # 3 + 4 + 5, twice 4 and twice 8 (8.25 rounded).
    warning = "warning: odd.sol: expected the cost of its routes, 36, got 40; "
    assert result.stderr.startswith(warning) and result.stderr.count("\n") == 1


@pytest.mark.usefixtures("here")
def test_what_cannot_limit_vehicles_is_counted():
    """Its answer is refused, with solvers that can."""
    # Two full vehicles, if one takes 3 and 2: whoever begins with 2 and 2 needs a third.
    points = [[0, 0], [1, 0], [1.1, 0], [5, 0], [5, 1]]
    fields = {"coordinates": points, "demand": [0, 2, 2, 3, 3], "capacity": 5, "vehicles": 2}
    file = write("packed.json", fields)
    message = (
        "packed.json: expected routes of at most 2 vehicles, got 3 by nearest_neighbor; there are "
        "some: use --solver pyvrp, ortools or insertion, which can limit vehicles\n"
    )
    assert refusal(file, "--solver", "nearest_neighbor") == message
    held = run(file, "--solver", "insertion")
    assert held.exit_code == 0 and "2 of at most 2" in held.stdout


@pytest.mark.usefixtures("here")
def test_numbers_that_limit_nothing_say_so():
    """CVRPLIB's names; the option makes a limit of them."""
    Path("tiny.vrp").write_text(VRP.replace("NAME : tiny", "NAME : tiny-n5-k1"))
    result = run("tiny.vrp", "--solver", "insertion")
    assert "2 (1 in the name, which is no limit)" in result.stdout
    text = refusal("tiny.vrp", "--solver", "insertion", "--vehicles", "1")
    assert "within a capacity of 5; there are some with 2 vehicles" in text
    assert "expected at least 1 vehicle, got 0" in refusal("tiny.vrp", "--vehicles", "0")
    Path("given.vrp").write_text(VRP.replace("CAPACITY", "VEHICLES : 1\nCAPACITY"))
    assert "given.vrp: expected routes of at most 1 vehicle" in refusal("given.vrp")
    Path("half.vrp").write_text(VRP.replace("CAPACITY", "VEHICLES : 1.5\nCAPACITY"))
    assert "line 5, VEHICLES: expected whole numbers, got '1.5'" in refusal("half.vrp")
    Path("misspelt.vrp").write_text(VRP.replace("CAPACITY", "VEHICLE : 1\nCAPACITY"))
    warning = run("misspelt.vrp", "--solver", "insertion").stderr
    assert "line 5: expected the keywords" in warning and "did you mean VEHICLES?" in warning


@pytest.mark.usefixtures("here")
def test_a_gap_below_zero_has_a_remark():
    """But not where the best-known value is the same up to the digits that it has."""
    Path("tiny.vrp").write_text(VRP)
    local_search = ("tiny.vrp", "--solver", "local_search", "--best-known")
    result = run(*local_search, "33")
    assert "Remark: the cost is better than the best-known one: a new best" in result.stdout
    assert "-3.03 %" in result.stdout
    assert "Remark" not in run(*local_search, "32").stdout
    Path("shop.json").write_text(json.dumps({"coordinates": SQUARE}))
    again = run("shop.json", "--solver", "local_search", "--best-known", "14.5")  # 14.47
    assert "-0.19 %" in again.stdout and "Remark" not in again.stdout
    Path("bks.csv").write_text("instance,bks\ntiny,33\nshop,14.5\n")
    table = run("tiny.vrp", "shop.json", "--solver", "local_search", "--best-known", "bks.csv")
    assert table.stdout.count("Remark") == table.stdout.count("Remark on tiny.vrp: the cost") == 1
