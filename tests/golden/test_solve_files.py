"""Published optima are found from the command line, each within seconds."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.data import read_instance


@pytest.mark.solvers
@pytest.mark.parametrize(
    ("package", "file", "options", "optimum"),
    [
        ("pyvrp", "cvrplib/A/A-n32-k5.vrp", ["--solver", "pyvrp", "--max-runtime", "2"], 784),
        ("elkai", "tsplib/tsp/berlin52.tsp", ["--solver", "lkh", "--max-runtime", "2"], 7542),
        ("elkai", "tsplib/atsp/br17.atsp", [], 39),
        # A poor start, and the rest by a solver that goes on from it.
        (
            "pyvrp",
            "vrptw/solomon/C101.txt",
            ["--solver", "nearest_neighbor", "--polish", "2"],
            827.3,
        ),
        ("ortools", "jssp/instances/ft06", [], 55),
        ("ortools", "jssp/instances/la01", ["--solver", "dispatching", "--polish", "5"], 666),
        ("ortools", "fjsp/song_fjsp_drl/Public/Mk01.fjs", [], 40),
        ("ortools", "fjsp/kacem/k1.txt", ["--solver", "cpsat", "--max-runtime", "5"], 11),
    ],
)
def test_optima(
    shared_dir: Path, tmp_path: Path, package: str, file: str, options: list[str], optimum: float
):
    """The value printed, the gap, and the solution written are those of the literature."""
    pytest.importorskip(package)
    path = shared_dir / "data" / file
    if not path.is_file():
        pytest.skip(f"no {file} in the shared folder")
    instance = read_instance(path)
    out = tmp_path / f"solution{instance.suffixes[0]}"
    arguments = ["solve", str(path), *options, "--best-known", str(optimum), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)["results"]
    assert record["objective"] == optimum and record["gap"] == 0
    assert record["optimal"] == (package == "ortools")  # CP-SAT proves it
    assert instance.objective(instance.read_solution(out)) == optimum
