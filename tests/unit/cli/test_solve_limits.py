"""`rl4co solve` in real processes: nothing in a file is ignored, and why there is no solution."""

from __future__ import annotations

import json
import random

from pathlib import Path
from typing import Any

import pytest

from tests.commands import Commands, slack
from tests.unit.instance_texts import SOLOMON, VRP

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
#: More than any reason takes, on a machine that is busy with other things.
TIME = ("--max-runtime", "100")
HEAVY = "# capacity: 10\nnode,x,y,demand\ndepot,0,0,0\nSchmidt,0,3,12\nMeier,4,3,5\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, fields: dict[str, Any]) -> str:
    Path(name).write_text(json.dumps(fields))
    return name


def error_text(command: Commands, *arguments: str) -> str:
    """The only line that a failing command prints, on stderr."""
    result = command("solve", *arguments)
    assert result.code == 2 and result.stdout == "", result
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_limits_and_reasons(command: Commands):
    """Limits, impossible data, conflicts, odd values, all at once."""
    pytest.importorskip("ortools")
    fits = {"coordinates": SQUARE, "demand": [0, 2, 3, 2, 1], "capacity": 8}
    write("one.json", {**fits, "vehicles": 1})
    write("three.json", {**SCARCE, "vehicles": 1})
    write("scarce.json", {**SCARCE, "vehicles": 2})
    write("hurry.json", HURRY)
    Path("heavy.csv").write_text(HEAVY)
    Path("odd.vrp").write_text(VRP)
    Path("odd.sol").write_text("Route #1: 1 2\nRoute #2: 3\nRoute #3: 4\nCost 40\n")
    result = command("solve", ".", "--solver", "insertion", *TIME, "--json")
    assert result.code == 1, result.stderr
    found = {Path(r["file"]).name: r for r in result.json["results"]}
    errors = {name: r["error"]["message"] for name, r in found.items() if "error" in r}
    assert (found["one.json"]["vehicles"], found["one.json"]["max_vehicles"]) == (1, 1)
    #: File → what its message names: limits, customers, what would help.
    named = {
        "three.json": ("1 vehicle",),
        "scarce.json": (
            "Schmidt (demand 6)",
            "Meier",
            "Huber",
            "18",
            "--vehicles 3",
            "12 (2 more)",
        ),
        "hurry.json": ("Schmidt (60 to 70)", "Meier", "Huber", "--vehicles 3", "100 (25 later)"),
        "heavy.csv": ("Schmidt", "demand 12", "capacity 10"),
    }
    assert set(errors) == set(named)
    for name, words in named.items():
        assert errors[name].startswith(f"{name}: ")
        assert all(word in errors[name] for word in words), errors[name]
    assert "a new best solution, unless" in found["odd.vrp"]["remarks"][0]
    # 3 + 4 + 5, twice 4 and twice 8 (8.25 rounded).
    assert result.stderr.startswith("warning: odd.sol: ") and result.stderr.count("\n") == 1
    assert "36" in result.stderr and "40" in result.stderr


def test_solvers_without_a_vehicle_limit(command: Commands):
    """Too many routes raise an error that names solvers with a limit."""
    # Two full vehicles, if one takes 3 and 2: whoever begins with 2 and 2 needs a third.
    points = [[0, 0], [1, 0], [1.1, 0], [5, 0], [5, 1]]
    fields = {"coordinates": points, "demand": [0, 2, 2, 3, 3], "capacity": 5, "vehicles": 2}
    file = write("packed.json", fields)
    text = error_text(command, file, "--solver", "nearest_neighbor", *TIME)
    assert "packed.json" in text and "insertion" in text
    held = command("solve", file, "--solver", "insertion")
    assert held.code == 0 and "2 of at most 2" in held.stdout


def test_a_time_limit_is_for_the_reason_as_well(command: Commands):
    """Thirty customers of whom PyVRP finds no solution, nor CP-SAT a minimal conflict, in 2 s."""
    pytest.importorskip("pyvrp")
    rng = random.Random(1)
    points = [[rng.randint(0, 100), rng.randint(0, 100)] for _ in range(31)]
    opening = [rng.randint(40, 300) for _ in range(30)]
    windows = [[0, 480], *([start, start + rng.randint(20, 60)] for start in opening)]
    late = {"time_windows": windows, "service_times": [0, *[10] * 30]}
    write("late.json", {"coordinates": points, "demand": [0, *[1] * 30], "capacity": 99, **late,
                        "vehicles": 4})  # fmt: skip
    write("scarce.json", {**SCARCE, "vehicles": 2})
    # What a command takes that does nothing.
    patience = slack() + 2 * command("solve", "nowhere.json").seconds
    result = command("solve", "late.json", "--max-runtime", "2", "--json")
    assert result.code == 2 and result.seconds < 2 + patience, result
    assert "raise --max-runtime" in result.error
    # What is trivially impossible needs no time.
    at_once = command("solve", "scarce.json", "--max-runtime", "0.01", "--json")
    assert at_once.seconds < 0.01 + patience
    assert "customer Schmidt (demand 6), customer Meier (demand 6) and" in at_once.error


def test_numbers_that_are_no_limits(command: Commands):
    """CVRPLIB's names and Solomon's fleets; the option makes a limit of them."""
    Path("tiny.vrp").write_text(VRP.replace("NAME : tiny", "NAME : tiny-n5-k1"))
    Path("solomon.txt").write_text(SOLOMON)
    insertion = ("--solver", "insertion")
    result = command("solve", "tiny.vrp", *insertion)
    assert "2 (1 in the name, which is no limit)" in result.stdout
    assert "which is no limit" in command("solve", "solomon.txt", *insertion).stdout
    text = error_text(command, "tiny.vrp", *insertion, "--vehicles", "1", *TIME)
    assert "within a capacity of 5; there are some with 2 vehicles" in text
    assert "expected at least 1 vehicle, got 0" in error_text(
        command, "tiny.vrp", "--vehicles", "0"
    )
    Path("given.vrp").write_text(VRP.replace("CAPACITY", "VEHICLES : 1\nCAPACITY"))
    assert "given.vrp: expected routes of at most 1 vehicle" in error_text(
        command, "given.vrp", *TIME
    )
    Path("half.vrp").write_text(VRP.replace("CAPACITY", "VEHICLES : 1.5\nCAPACITY"))
    assert "line 5, VEHICLES: expected whole numbers, got '1.5'" in error_text(command, "half.vrp")
    Path("misspelt.vrp").write_text(VRP.replace("CAPACITY", "VEHICLE : 1\nCAPACITY"))
    warning = command("solve", "misspelt.vrp", *insertion).stderr
    assert "line 5: expected the keywords" in warning and "did you mean VEHICLES?" in warning


def test_a_gap_below_zero_has_a_remark(command: Commands):
    """A cost below the best-known value has a remark, unless both are equal up to rounding."""
    Path("tiny.vrp").write_text(VRP)
    search = ("--solver", "local_search", "--best-known")
    result = command("solve", "tiny.vrp", *search, "33")
    assert "Remark: the cost is better than the best-known one: a new best" in result.stdout
    assert "-3.03 %" in result.stdout
    assert "Remark" not in command("solve", "tiny.vrp", *search, "32").stdout
    Path("shop.json").write_text(json.dumps({"coordinates": SQUARE}))
    again = command("solve", "shop.json", *search, "14.5")  # 14.47
    assert "-0.19 %" in again.stdout and "Remark" not in again.stdout
    Path("bks.csv").write_text("instance,bks\ntiny,33\nshop,14.5\n")
    table = command("solve", "tiny.vrp", "shop.json", *search, "bks.csv")
    assert table.stdout.count("Remark") == table.stdout.count("Remark on tiny.vrp: the cost") == 1
