"""A run that was killed and resumed gives the numbers of one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers.logger import Logger

from rl4co.data import save_tensordict_to_npz
from rl4co.envs import TSPEnv, TSPGenerator
from rl4co.models import AttentionModel
from rl4co.training import LearningCurve
from rl4co.training.resume import settle_batch, settle_epoch
from tests.unit.training import runs

PLATEAU = {
    "lr_scheduler": "ReduceLROnPlateau",
    # Nothing improves by 10, so the rate drops after every epoch but the first.
    "lr_scheduler_kwargs": {
        "mode": "max",
        "patience": 0,
        "threshold": 10.0,
        "threshold_mode": "abs",
    },
}


class Events(Callback):
    """Writes down what happens: batches with their data, validations, ends of epochs."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_train_batch_start(self, trainer, model, batch, batch_idx):
        self.seen.append(("batch", trainer.current_epoch, batch_idx, float(batch["locs"].sum())))

    def on_validation_start(self, trainer, model):
        if not trainer.sanity_checking:
            self.seen.append(("validation", trainer.current_epoch, trainer.global_step))

    def on_train_epoch_end(self, trainer, model):
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self.seen.append(("epoch", trainer.current_epoch, trainer.global_step, rate))


class Rows(Logger):
    """Keeps all that is logged."""

    name, version = "rows", 0

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[int | None, dict[str, float]]] = []

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, {key: float(value) for key, value in metrics.items()}))

    def log_hyperparams(self, *args, **kwargs):
        pass


def run(folder: Path, model: Any, ckpt: Path | None, **options: Any) -> Any:
    """Trains, from a checkpoint if there is one; returns everything one can look at."""
    saving = options.pop("saving")
    events, curve, rows = Events(), LearningCurve(), Rows()
    callbacks: list[Callback] = [events, curve, *options.pop("callbacks", [])]
    if ckpt is None:
        callbacks.append(
            ModelCheckpoint(dirpath=folder, filename="{step}", save_top_k=-1, **saving)
        )
    trainer = runs.make_trainer(
        folder, callbacks=callbacks, logger=rows, log_every_n_steps=1, **options
    )
    trainer.fit(model, ckpt_path=ckpt)
    history = [{k: v for k, v in entry.items() if k != "seconds"} for entry in curve.history]
    return model.state_dict(), events.seen, rows.rows, history


def assert_same_weights(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        same = torch.equal(value, theirs[key]) if torch.is_tensor(value) else value == theirs[key]
        assert same, key


EVERY_STEP = {"every_n_train_steps": 1}
CASES = {
    "after each batch": (EVERY_STEP, {}, {}),
    "at the end of an epoch": ({}, {}, {}),
    "after validation": ({"save_on_train_epoch_end": False}, {}, {}),
    "with several validations per epoch": (EVERY_STEP, {"val_check_interval": 2}, {}),
    "after one of several validations": (
        {"save_on_train_epoch_end": False},
        {"val_check_interval": 2},
        {},
    ),
    "with validation every other epoch": (EVERY_STEP, {"check_val_every_n_epoch": 2}, {}),
    "without validation": (EVERY_STEP, {"limit_val_batches": 0}, {}),
    "without reloading": (EVERY_STEP, {"reload_dataloaders_every_n_epochs": 0}, {}),
    "with accumulated gradients": (EVERY_STEP, {"accumulate_grad_batches": 2}, {}),
    "up to a number of steps": ({}, {"max_epochs": -1, "max_steps": 10}, {}),
    "on a plateau, after each batch": (EVERY_STEP, {}, PLATEAU),
    "on a plateau, at the end of an epoch": ({}, {}, PLATEAU),
    "on a plateau, after validation": ({"save_on_train_epoch_end": False}, {}, PLATEAU),
    "POMO": ({"every_n_train_steps": 3}, {}, {"kind": "pomo"}),
}


def step_of(file: Path) -> int:
    return int(file.stem.split("=")[1])


@pytest.mark.parametrize("case", CASES)
def test_resuming_from_any_checkpoint_changes_nothing(case: str, tmp_path: Path) -> None:
    """A resumed run repeats the remaining data, metrics and weights of a complete one.

    One case resumes from each checkpoint, the others from each third: within epochs and between.
    """
    saving, options, settings = CASES[case]
    options = {"saving": saving, **options}
    complete_run = run(tmp_path, runs.make_model(**settings), None, **options)
    files = sorted(tmp_path.glob("*.ckpt"), key=step_of)
    assert len(files) >= 2
    if len(files) > 4 and case != "after each batch":
        files = files[::3]
    for file in files:
        resumed = run(tmp_path, runs.make_model(**settings), file, **options)
        assert_same_weights(complete_run[0], resumed[0])
        assert complete_run[3] == resumed[3], file
        for complete, repeated in zip(complete_run[1:3], resumed[1:3], strict=True):
            assert complete[len(complete) - len(repeated) :] == repeated, file
        # The first one leaves work to do, so that the comparison above is not empty.
        assert file != files[0] or any(event[0] == "batch" for event in resumed[1])


@pytest.mark.parametrize("workers", [0, 1])
def test_training_file_is_resumed_within_an_epoch(workers: int, tmp_path: Path) -> None:
    """Shuffled batches of a file go on in the order of the interrupted epoch, also in workers."""
    instances = TSPGenerator(num_loc=6)(32, rng=torch.Generator().manual_seed(1))
    save_tensordict_to_npz(instances, tmp_path / "train.npz")

    def model() -> AttentionModel:
        torch.manual_seed(0)
        env = TSPEnv(generator_params={"num_loc": 6}, train_file=str(tmp_path / "train.npz"))
        return AttentionModel(
            env,
            baseline="exponential",
            policy_kwargs=runs.POLICY,
            seed=5,
            dataloader_num_workers=workers,
            **runs.SIZES,
        )

    options = {"saving": {"every_n_train_steps": 3}, "max_epochs": 2}
    complete_run = run(tmp_path, model(), None, **options)
    order = [[event[3] for event in complete_run[1] if event[:2] == ("batch", e)] for e in (0, 1)]
    assert len(order[0]) == len(order[1]) == runs.NUM_BATCHES
    assert order[0] != order[1]  # another permutation in each epoch
    for file in tmp_path.glob("*.ckpt"):
        resumed = run(tmp_path, model(), file, **options)
        assert_same_weights(complete_run[0], resumed[0])
        assert complete_run[3] == resumed[3]


RUN_APART = """
import sys, torch
from pathlib import Path
from tests.unit.training import runs
from tests.unit.training.test_resume import run
torch.set_num_threads(1)
folder, kind, ckpt, target = sys.argv[1:]
saving = {"every_n_train_steps": 2}
result = run(Path(folder), runs.make_model(kind), Path(ckpt) if ckpt else None, saving=saving)
torch.save((result[0], result[2][-1], result[3][-1]["val/reward"]), target)
"""


def run_apart(folder: Path, kind: str, ckpt: str) -> Any:
    """Weights, last row and last validation of a run in a separate process, as the killed one."""
    target = folder.with_suffix(".result")
    subprocess.run(
        [sys.executable, "-c", RUN_APART, str(folder), kind, ckpt, str(target)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
        capture_output=True,
        timeout=150,
    )
    return torch.load(target, weights_only=False)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), [("am", 7), ("pomo", 10)])
def test_killed_process_is_resumed(kind: str, step: int, tmp_path: Path) -> None:
    """A process killed within an epoch leaves checkpoints from which its run ends as it would."""
    killed = tmp_path / "killed"
    killed.mkdir()
    process = subprocess.Popen(
        [sys.executable, runs.__file__, kind, str(killed), str(step)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 150
        while not (killed / "reached").exists():
            assert process.poll() is None, process.communicate()[1].decode()
            assert time.monotonic() < deadline, "the run did not get to its step"
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    last = max(killed.glob("*.ckpt"), key=lambda file: int(file.stem.split("=")[1]))
    assert last.stem == f"step={step - 2 if step % 2 == 0 else step - 1}"  # the kill came first

    complete_run = run_apart(tmp_path / "complete", kind, "")
    resumed = run_apart(killed, kind, str(last))
    assert_same_weights(complete_run[0], resumed[0])
    assert complete_run[1:] == resumed[1:]


def test_early_stopping_is_not_forgotten(tmp_path: Path) -> None:
    """A run that was stopped early and killed before it could say so does not train on."""

    def stopping() -> EarlyStopping:
        # Nothing improves by 100, so patience runs out in the second epoch.
        return EarlyStopping("val/reward", mode="max", patience=1, min_delta=100.0)

    options: dict[str, Any] = {"saving": {}, "max_epochs": 6}
    complete_run = run(tmp_path, runs.make_model(), None, callbacks=[stopping()], **options)
    assert [event[1] for event in complete_run[1] if event[0] == "epoch"] == [0, 1]
    last = tmp_path / f"step={2 * runs.NUM_BATCHES}.ckpt"
    resumed = run(tmp_path, runs.make_model(), last, callbacks=[stopping()], **options)
    assert resumed[1] == []
    assert_same_weights(complete_run[0], resumed[0])


def test_counters_of_a_finished_epoch() -> None:
    """At the end of an epoch: the epoch counts as completed, no batch of the next one as done."""
    tracker = {"ready": 2, "started": 2, "processed": 2, "completed": 1}
    batches = {"ready": 4, "started": 4, "processed": 4, "completed": 4}
    loops = {
        "epoch_progress": {"current": dict(tracker), "total": dict(tracker)},
        "epoch_loop.batch_progress": {
            "current": dict(batches),
            "total": dict.fromkeys(batches, 8),
            "is_last_batch": True,
        },
    }
    settle_epoch(loops)
    assert loops["epoch_progress"]["current"]["completed"] == 2
    assert loops["epoch_loop.batch_progress"] == {
        "current": {"ready": 0, "started": 0, "processed": 0, "completed": 0},
        "total": dict.fromkeys(batches, 8),
        "is_last_batch": False,
    }


@pytest.mark.parametrize(("validates", "last"), [(False, False), (True, True), (False, True)])
def test_counters_after_a_batch(validates: bool, last: bool) -> None:
    """Lightning's own counters serve in the middle of an epoch, and nowhere else."""
    batch = {"ready": 4, "started": 4, "processed": 4, "completed": 3}
    none = {"ready": 0, "started": 0, "processed": 0, "completed": 0}
    loops = {
        "epoch_loop.batch_progress": {"current": dict(batch), "total": dict(batch)},
        "epoch_loop.val_loop.batch_progress": {
            "current": dict(none),
            "total": dict(none),
            "is_last_batch": True,
        },
        "epoch_loop.state_dict": {"_batches_that_stepped": 3},
    }
    settle_batch(loops, validates, last)
    assert loops["epoch_loop.batch_progress"]["current"]["completed"] == (4 if last else 3)
    assert loops["epoch_loop.val_loop.batch_progress"]["total"]["started"] == int(validates)
    # One step more than was counted, unless validation (and the count after it) is to come.
    stepped = loops["epoch_loop.state_dict"]["_batches_that_stepped"]
    assert stepped == (4 if last and not validates else 3)
