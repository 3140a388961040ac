"""The learning comparison without any training: curves, section, plot, the recording callback."""

from __future__ import annotations

import argparse
import io
import json

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import learning
from benchmarks.cases import NEW, PUBLISHED

POINTS: list[learning.Point] = [
    {"seconds": 0.0, "step": 0, "cost": 7.0},
    {"seconds": 30.0, "step": 40, "cost": 5.0},
    {"seconds": 61.0, "step": 80, "cost": 4.0},
]


def test_curves_are_read_up_to_an_error() -> None:
    seen: list[learning.Point] = []
    lines = [json.dumps(POINTS[0]), json.dumps({"error": "RuntimeError: x"})]
    curve = learning.collect(lines, seen.append)
    assert curve == {"points": POINTS[:1], "error": "RuntimeError: x"}
    assert seen == POINTS[:1]


def test_points_in_time() -> None:
    assert learning.point_at(POINTS, 31.0) == POINTS[1]
    assert learning.point_at(POINTS[1:], 10.0) is None
    assert learning.time_to_reach(POINTS, 4.5) == 61.0
    assert learning.time_to_reach(POINTS, 3.0) is None


def test_learning_section_and_plot_survive_a_crash(tmp_path: Path) -> None:
    curves: dict[str, learning.Curve] = {
        PUBLISHED: {"points": POINTS, "error": None},
        NEW: {"points": [], "error": "killed by SIGKILL"},
    }
    meta = {
        "command": "python -m benchmarks.learning",
        "date": "2026-01-01 00:00 UTC",
        "cpu": "CPU",
        "cores": 2,
        "threads": 2,
        "versions": {PUBLISHED: "0.7.0", NEW: "1.0.0"},
        "instances": 1024,
    }
    result = {"meta": meta, "minutes": 1.0, "contenders": curves}
    text = learning.render_markdown(result)
    assert "| published | 7.0000 | 5.0000 | 4.0000 | 4.0000 | 80 |  |" in text
    assert "| new | – | – | – | – | – | fails: killed by SIGKILL |" in text
    assert learning.upper_limit(curves, 1.0) == pytest.approx(1.02 * 5.0)
    learning.draw(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 0


def test_evaluation_leaves_modes_alone_and_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen sub-module stays frozen, a training one keeps training; no evaluation is timed."""
    from benchmarks import learning_worker

    now = [0.0]
    monkeypatch.setattr(learning_worker.time, "perf_counter", lambda: now[0])

    class Policy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen, self.active = torch.nn.BatchNorm1d(2), torch.nn.BatchNorm1d(2)
            self.frozen.eval()

        def forward(self, td: Any, env: Any, **_: Any) -> dict[str, Any]:
            assert not self.active.training
            now[0] += 100.0
            return {"reward": -torch.arange(3.0)}

    class Env:
        def reset(self, td: Any) -> Any:
            return td

    model = argparse.Namespace(policy=Policy(), env=Env())
    trainer = argparse.Namespace(global_step=5, should_stop=False)
    stream = io.StringIO()
    recorder = learning_worker.CostRecorder(
        torch.rand(3, 4, 2), limit=0.0, interval=1.0, stream=stream
    )
    now[0] = 3.0
    recorder.on_train_batch_end(trainer, model, None, None, 0)
    assert recorder.clock.read() == 3.0
    point = json.loads(stream.getvalue())
    assert (point["seconds"], point["step"], point["cost"]) == (3.0, 5, 1.0)
    assert trainer.should_stop
    assert [module.training for module in model.policy.children()] == [False, True]
    recorder.on_train_batch_end(trainer, model, None, None, 1)
    assert len(stream.getvalue().splitlines()) == 1  # the curve is closed
