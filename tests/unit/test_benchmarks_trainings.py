"""The clock and the record of short trainings."""

from __future__ import annotations

import argparse
import json

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import report, scheduling, trainings


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds of computing, to be set by hand."""
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(trainings, "seconds_of_computing", lambda: now.seconds)
    return now


def train(limit: trainings.Limit, clock: Any, seconds: float, steps_per_batch: int = 1) -> int:
    """Batches until the limit says stop, each of which takes the same time."""
    trainer = SimpleNamespace(global_step=0, should_stop=False)
    limit.on_train_start(trainer, None)
    batches = 0
    while not trainer.should_stop:
        clock.seconds += seconds
        trainer.global_step += steps_per_batch
        limit.on_train_batch_end(trainer, None)
        batches += 1
    return batches


def test_a_training_ends_after_its_minutes(clock: Any) -> None:
    limit = trainings.Limit(minutes=0.5)
    assert train(limit, clock, seconds=8.0) == 4  # the first batch that ends beyond 30 seconds
    assert limit.minutes == pytest.approx(32 / 60)


def test_a_training_ends_after_its_gradient_steps(clock: Any) -> None:
    assert train(trainings.Limit(steps=10), clock, 1.0) == 10
    assert train(trainings.Limit(steps=10), clock, 1.0, steps_per_batch=4) == 3


def test_time_per_step_is_counted_after_the_warm_up(clock: Any) -> None:
    limit = trainings.Limit(steps=12)
    trainer = SimpleNamespace(global_step=0, should_stop=False)
    limit.on_train_start(trainer, None)
    for seconds in (50.0, 3.0, 5.0):  # four gradient steps each
        clock.seconds += seconds
        trainer.global_step += 4
        limit.on_train_batch_end(trainer, None)
    assert limit.seconds_per_step(warm_up=3) == pytest.approx((3.0 + 5.0) / 8)


def record(folder: Path, **changes: Any) -> trainings.Record:
    arguments = argparse.Namespace(**{"results": folder, "threads": 1, "lr": 0.1, **changes})
    return trainings.Record("baselines", arguments, ["lr", "threads"])


def test_processes_share_a_record(tmp_path: Path) -> None:
    one, other = record(tmp_path), record(tmp_path)
    one.add({"problem": "tsp", "method": "AM"})
    other.add({"problem": "cvrp", "method": "AM"}, steps={"cvrp": 7})
    again = record(tmp_path)
    assert again.has(problem="tsp") and again.has(problem="cvrp", method="AM")
    assert not again.has(problem="tsp", method="POMO")
    assert again.content["steps"] == {"cvrp": 7}


def test_rows_of_other_settings_are_dropped(tmp_path: Path) -> None:
    record(tmp_path).add({"problem": "tsp"})
    assert not record(tmp_path, lr=0.2).has(problem="tsp")


def test_job_shops_have_the_same_numbers_everywhere() -> None:
    """Those that are stored: in the table of the benchmarks and in that of the method."""
    stored = json.loads((report.RESULTS / "scheduling.json").read_text(encoding="utf-8"))
    cells = scheduling.table_rows(stored)
    root = report.RESULTS.parent.parent
    page = (root / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert report.markdown_table(scheduling.COLUMNS, cells) in page
    assert scheduling.CAPTION in page
    method = (root / "rl4co/models/zoo/l2d/README.md").read_text(encoding="utf-8")
    for instances, name, steps, makespan, gap, _ in cells:
        if steps:
            assert f"{makespan} ({gap})" in method, (instances, name)
