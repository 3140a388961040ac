"""The benchmark of non-autoregressive methods runs, with tiny budgets."""

from __future__ import annotations

import json

from pathlib import Path

import numpy as np
import pytest

from benchmarks import nonautoregressive


@pytest.mark.parametrize(
    "arguments",
    [
        ["scale", "--size", "60", "--seconds", "0.05"],
        ["deepaco", "--size", "12", "--minutes", "0.005", "--batch-size", "2"],
        ["reviser", "--size", "6", "--minutes", "0.005", "--batch-size", "4"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands(arguments: list[str], tmp_path: Path):
    """Rows with costs, stored as JSON."""
    rows = nonautoregressive.main([*arguments, "--results", str(tmp_path)])
    (file,) = tmp_path.glob("*.json")
    assert json.loads(file.read_text()) == rows
    numbers = [row[key] for row in rows for key in ("cost", "mean ant") if key in row]
    assert numbers and all(np.isfinite(numbers))


def test_colony_and_its_temperatures(tmp_path: Path):
    """Ants with 1/d and iterated local search on given instances; temperature 1 changes nothing."""
    locs = np.random.default_rng(0).random((2, 30, 2), dtype=np.float32)
    np.savez(tmp_path / "few.npz", locs=locs)
    options = ["--instances", str(tmp_path / "few.npz"), "--ants", "5", "--iterations", "2"]
    rows = nonautoregressive.main(["colony", *options])
    assert [row["method"] for row in rows] == ["ants, 1/d", "ils"]
    swept = nonautoregressive.main(["temperature", *options])
    costs = {row["tau"]: row["ants, 1/d"] for row in swept}
    assert list(costs) == list(nonautoregressive.TEMPERATURES)
    assert costs[1.0] == rows[0]["cost"]


def test_instances_of_glop_follow_the_recipe():
    """The first numbers of the recipe's stream."""
    instances = nonautoregressive.glop_instances(2, 1000, 200.0)
    draw = np.random.RandomState(1234)
    np.testing.assert_allclose(instances["depot"], draw.uniform(size=(100, 2))[:2], rtol=1e-6)
    assert instances["locs"].shape == (2, 1000, 2)
    assert float(instances["demand"].max()) <= 9 / 200 + 1e-6
