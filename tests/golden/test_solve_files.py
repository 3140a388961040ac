"""Published optima are found from the command line, each within seconds."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.data import read_instance, read_solution


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
    out = tmp_path / "solution.sol"
    arguments = ["solve", str(path), *options, "--best-known", str(optimum), "--out", str(out)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    (record,) = json.loads(result.stdout)["results"]
    assert record["objective"] == optimum and record["gap"] == 0
    instance = read_instance(path)
    assert instance.cost(read_solution(out, instance).routes) == optimum
