"""A training that is stopped by a signal ends soon, and resumes exactly where it stopped."""

from __future__ import annotations

import os
import signal
import time

from pathlib import Path
from typing import Any

import pytest

from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from rl4co.training.interrupts import TrainingInterrupted
from tests.unit.training import runs
from tests.unit.training.test_resume import assert_same_weights


class SendSignal(Callback):
    """Sends a signal to this process in a hook, in an epoch."""

    def __init__(self, number: int, hook: str, epoch: int) -> None:
        self.number, self.hook, self.epoch = number, hook, epoch

    def _send(self, hook: str, trainer: Any, batch_idx: int = 1) -> None:
        due = (hook, trainer.current_epoch, batch_idx) == (self.hook, self.epoch, 1)
        if due and not trainer.sanity_checking:
            os.kill(os.getpid(), self.number)

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self._send("batch", trainer, batch_idx)

    def on_validation_batch_start(self, trainer, model, batch, batch_idx, dataloader_idx=0):
        self._send("validation", trainer)

    def on_fit_start(self, trainer, model):
        self._send("setup", trainer)
        time.sleep(30 if self.hook == "setup" else 0)  # a baseline, say, that is evaluated


def fit(folder: Path, *callbacks: Callback, ckpt_path: Path | None = None) -> Any:
    model = runs.make_model()
    checkpoints = ModelCheckpoint(dirpath=folder, filename="{epoch}")
    runs.make_trainer(folder, callbacks=[*callbacks, checkpoints]).fit(model, ckpt_path=ckpt_path)
    return model.state_dict()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The weights after a run without signals."""
    return fit(tmp_path_factory.mktemp("uninterrupted"))


@pytest.mark.parametrize(
    ("number", "hook", "epoch"),
    [
        (signal.SIGTERM, "batch", 0),
        (signal.SIGINT, "batch", 1),
        (signal.SIGINT, "validation", 0),
    ],
)
def test_stopped_runs_resume_exactly(
    number: int, hook: str, epoch: int, uninterrupted: Any, tmp_path: Path
) -> None:
    """Also in the first epoch there is a checkpoint; the resumed run ends with the same weights."""
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(TrainingInterrupted) as stopped:
        fit(tmp_path / "stopped", SendSignal(number, hook, epoch))
    assert stopped.value.code == 128 + number
    assert stopped.value.checkpoint == tmp_path / "stopped" / "last.ckpt"
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    resumed = fit(tmp_path / "resumed", ckpt_path=stopped.value.checkpoint)
    assert_same_weights(uninterrupted, resumed)


def test_setup_is_stopped_at_once(tmp_path: Path) -> None:
    """A long preparation is not waited for; there is nothing to save yet."""
    started = time.monotonic()
    with pytest.raises(TrainingInterrupted) as stopped:
        fit(tmp_path, SendSignal(signal.SIGTERM, "setup", 0))
    assert time.monotonic() - started < 20
    assert stopped.value.checkpoint is None


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """Ctrl-C twice within a batch ends it as usual."""

    class Twice(SendSignal):
        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the batch goes on")

    with pytest.raises(SystemExit):  # Lightning's exit after KeyboardInterrupt
        fit(tmp_path, Twice(signal.SIGINT, "batch", 0))
