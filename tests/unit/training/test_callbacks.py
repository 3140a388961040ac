"""Progress bar, speed and learning curve."""

from __future__ import annotations

import time

from pathlib import Path

import pytest
import torch

from lightning.pytorch.callbacks import ModelCheckpoint

from rl4co.training import LearningCurve, RL4COProgressBar, SpeedMonitor
from rl4co.training.callbacks import Throughput
from tests.unit.training import runs


def test_throughput_counts_instances_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two batches of 3 in 2 processes within 4 seconds: 3 per second."""
    clock = iter([10.0, 14.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    throughput = Throughput()
    throughput.add(torch.zeros(3), num_processes=2)
    throughput.add(torch.zeros(3), num_processes=2)
    assert throughput.rate == 3.0


def test_speed_is_logged_for_each_epoch(tmp_path: Path) -> None:
    curve = LearningCurve()
    started = time.perf_counter()
    trainer = runs.make_trainer(tmp_path, max_epochs=2, callbacks=[SpeedMonitor(), curve])
    trainer.fit(runs.make_model())
    seconds = time.perf_counter() - started
    rates = curve.values("train/instances_per_second")
    assert len(rates) == 2
    # 32 instances per epoch took less than the whole, so they came faster than that.
    assert all(rate > 32 / seconds for rate in rates)


def test_learning_curve_has_every_epoch(tmp_path: Path) -> None:
    """Its numbers are those of the trainer; training metrics are means of the epoch."""
    curve = LearningCurve()
    trainer = runs.make_trainer(
        tmp_path, max_epochs=4, check_val_every_n_epoch=2, callbacks=[curve]
    )
    trainer.fit(runs.make_model())
    assert [entry["epoch"] for entry in curve.history] == [0, 1, 2, 3]
    assert [entry["step"] for entry in curve.history] == [4, 8, 12, 16]
    assert len(curve.values("train/reward")) == 4
    assert ["val/reward" in entry for entry in curve.history] == [False, True, False, True]
    assert curve.values("val/reward")[-1] == float(trainer.callback_metrics["val/reward"])
    assert curve.values("train/loss")[-1] == float(trainer.callback_metrics["train/loss_epoch"])
    assert not [name for name in curve.history[-1] if name.endswith(("_step", "_epoch"))]
    seconds = curve.values("seconds")
    assert seconds == sorted(seconds)


def test_learning_curve_survives_a_restart(tmp_path: Path) -> None:
    saving = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1)
    first, second = LearningCurve(), LearningCurve()
    runs.make_trainer(tmp_path, callbacks=[first, saving]).fit(runs.make_model())
    trainer = runs.make_trainer(tmp_path, callbacks=[second])
    trainer.fit(runs.make_model(), ckpt_path=tmp_path / "epoch=1.ckpt")
    assert second.values("val/reward") == first.values("val/reward")
    assert second.history[:2] == first.history[:2]
    assert second.history[2]["seconds"] > second.history[1]["seconds"]


def test_progress_bar_shows_reward_and_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = RL4COProgressBar(console_kwargs={"width": 200})
    trainer = runs.make_trainer(tmp_path, max_epochs=2, callbacks=[bar], enable_progress_bar=True)
    trainer.fit(runs.make_model())
    shown = capsys.readouterr().out
    assert "Epoch 1/1" in shown
    assert f"{runs.NUM_BATCHES}/{runs.NUM_BATCHES}" in shown
    for part in ("reward: -", "val reward: -", "loss: ", "instances/s: "):
        assert part in shown
    assert "_step" not in shown
    metrics = bar.get_metrics(trainer, trainer.lightning_module)
    assert list(metrics)[:2] == ["reward", "val reward"]
    assert metrics["val reward"] == pytest.approx(float(trainer.callback_metrics["val/reward"]))


def test_progress_bar_is_not_drawn_for_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 quick batches are drawn a few times only, the last one always."""
    drawn: list[int] = []
    monkeypatch.setattr(
        "lightning.pytorch.callbacks.RichProgressBar.on_train_batch_end",
        lambda self, trainer, model, outputs, batch, batch_idx: drawn.append(batch_idx),
    )
    bar = RL4COProgressBar(refresh_rate=1)
    trainer = runs.make_trainer(
        tmp_path, max_epochs=1, callbacks=[bar], enable_progress_bar=True, limit_val_batches=0
    )
    trainer.fit(runs.make_model("pomo", num_loc=4, batch_size=2, train_data_size=128))
    assert drawn[-1] == 63
    assert len(drawn) < 32
