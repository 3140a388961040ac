"""Runs of a sweep as one table and a plot."""

from __future__ import annotations

import csv
import json

from pathlib import Path

import pytest

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError
from rl4co.tasks.collect import collect_runs, plot_curves, table_of_runs, write_collection
from rl4co.tasks.train import load_config, run


def add_run(folder: Path, overrides: list[str], rows: list[dict], version: int = 0) -> None:
    """A folder as `rl4co train` leaves it."""
    (folder / ".hydra").mkdir(parents=True, exist_ok=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {o}\n" for o in overrides))
    if rows:
        place = folder / "csv" / f"version_{version}"
        place.mkdir(parents=True)
        names = list(dict.fromkeys(name for row in rows for name in row))
        with (place / "metrics.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two rates with two seeds each (one failed), in numbered folders."""
    folder = tmp_path / "sweep"
    for number, (rate, seed) in enumerate([(1e-3, 1), (1e-3, 2), (1e-4, 1), (1e-4, 2)]):
        overrides = ["experiment=quick", f"+model.rate={rate}", f"seed={seed}"]
        rows = [
            {"step": 9, "epoch": 0, "val/reward": -5.0 - number},
            {"step": 9, "epoch": 0, "train/reward": -6.0},
            {"step": 19, "epoch": 1, "val/reward": -4.5 - number},
            {"step": 29, "epoch": 2, "val/reward": -4.75 - number},
            {"step": 30, "epoch": 3, "test/reward": -4.25 - number},
        ]
        add_run(folder / str(number + 8), overrides, rows if number < 3 else [])
    (folder / "11" / "error.log").write_text("Traceback ...")
    return folder


def test_a_table_of_what_differs(sweep: Path):
    """Overrides that all runs share are left out; last and best values; the failed run stays."""
    records = table_of_runs(collect_runs(sweep))
    assert [record["run"] for record in records] == ["8", "9", "10", "11"]
    assert records[1] == {
        "run": "9", "rate": "0.001", "seed": "2", "status": "tested", "steps": 29,
        "train/reward": -6.0, "val/reward": -5.75, "best val/reward": -5.5, "test/reward": -5.25,
    }  # fmt: skip
    assert records[3]["status"] == "failed" and records[3]["val/reward"] is None


def test_names_of_settings(tmp_path: Path):
    """The last part, where that is unique; where a run is does not count as a setting."""
    for k in range(2):
        changes = [f"env.size={k}", f"model.size={k}", f"model.rate={k}", f"ckpt_path={k}.ckpt"]
        add_run(tmp_path / str(k), [*changes, f"hydra.run.dir={k}"], [])
    runs = collect_runs(tmp_path)
    assert list(table_of_runs(runs)[0]) == [
        "run", "env.size", "model.size", "rate", "status", "steps"
    ]  # fmt: skip
    assert list(table_of_runs(runs[:1])[0]) == ["run", "status", "steps"]


def test_resumed_runs_are_one(tmp_path: Path):
    """Later files of metrics replace the steps that were repeated."""
    rows = [{"step": 1, "val/reward": -3.0}, {"step": 2, "val/reward": -2.0}]
    add_run(tmp_path / "a", [], rows)
    add_run(tmp_path / "a", [], [{"step": 2, "val/reward": -1.0}, {"step": 3, "val/reward": 0}], 1)
    (record,) = collect_runs(tmp_path)
    assert record.curves["val/reward"] == [(1, -3.0), (2, -1.0), (3, 0.0)]


def test_files_and_plot(sweep: Path, tmp_path: Path):
    """Markdown, CSV and a plot in which seeds share a colour and a label."""
    runs = collect_runs(sweep)
    files = write_collection(runs, tmp_path / "out")
    assert [file.name for file in files] == ["runs.md", "runs.csv", "runs.png"]
    lines = files[0].read_text().splitlines()
    assert lines[0].startswith("| run | rate | seed | status |") and len(lines) == 6
    with files[1].open(newline="") as file:
        assert [row["val/reward"] for row in csv.DictReader(file)] == [
            "-4.75",
            "-5.75",
            "-6.75",
            "",
        ]
    (ax,) = plot_curves(runs).axes
    (legend,) = ax.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["rate=0.001", "rate=0.0001"]
    assert len(ax.lines) == 3 and ax.lines[0].get_color() == ax.lines[1].get_color()
    assert plot_curves(runs, "val/nothing") is None


def test_command(sweep: Path):
    """Prints the table, writes beside the runs, and accepts other metrics."""
    result = CliRunner().invoke(app, ["collect", str(sweep), "--json", "-m", "train/reward"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["runs"][0]["train/reward"] == -6.0
    assert (sweep / "runs.png").is_file()
    assert CliRunner().invoke(app, ["collect", str(sweep)]).exit_code == 0


def test_errors(sweep: Path, tmp_path: Path):
    """No folder, no runs, an unknown metric, a damaged file."""
    with pytest.raises(FileNotFoundError, match="nowhere"):
        collect_runs(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"metrics\.csv"):
        collect_runs(tmp_path / "empty")
    with pytest.raises(UnknownNameError, match="val/reward"):
        table_of_runs(collect_runs(sweep), ["val/rewards"])
    (sweep / "8" / "csv" / "version_0" / "metrics.csv").write_text("step,val/reward\n1,x\n")
    with pytest.raises(FileFormatError, match="version_0"):
        collect_runs(sweep)


def test_runs_of_the_trainer(tmp_path: Path):
    """What a training really writes can be collected."""
    cfg = load_config([
        "experiment=quick", "trainer=cpu", "callbacks=none", "trainer.max_epochs=1",
        "+trainer.enable_progress_bar=false", "env.generator_params.num_loc=6",
        "model.batch_size=4", "model.train_data_size=8", "model.val_data_size=4",
        "model.test_data_size=4", f"paths.output_dir={tmp_path}/run",
    ])  # fmt: skip
    metrics, _ = run(cfg)
    (record,) = table_of_runs(collect_runs(tmp_path))
    assert record["status"] == "tested"
    assert record["test/reward"] == pytest.approx(metrics["test/reward"])
