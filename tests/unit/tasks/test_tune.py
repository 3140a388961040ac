"""Hyperparameter search: trials, resuming, pruning, and bad input."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from rl4co.core.errors import ConfigError
from rl4co.tasks import tune as tuning
from rl4co.training import pruning

optuna = pytest.importorskip("optuna")

TINY = (
    "experiment=quick",
    "env.generator_params.num_loc=5",
    "model.batch_size=4",
    "model.train_data_size=4",
    "model.val_data_size=4",
    "+model.policy_kwargs.embed_dim=16",
    "trainer.max_epochs=1",
    "trainer.accelerator=cpu",
    "logger=none",
)
RATE = "model.optimizer_kwargs.lr=tag(log,interval(1e-4,1e-2))"
LAYERS = "model.policy_kwargs.num_encoder_layers=range(1,3)"


def test_search_goes_on(tmp_path: Path):
    """A second call adds the missing trials; one that was left behind is run again."""
    lines: list[str] = []
    study = tuning.tune([*TINY, RATE, LAYERS], 2, tmp_path, report=lines.append)
    assert len(lines) == 2
    left_behind = study.ask()
    values = tuning.Space.parse([*TINY, RATE, LAYERS]).suggest(left_behind)
    study = tuning.tune([*TINY, RATE, LAYERS], 3, tmp_path, report=lines.append)
    assert len(lines) == 3 and " ".join(values) in lines[-1], lines
    trials = tuning.best_trials(study)
    assert sorted(trial.number for trial in trials) == [0, 1, 3], lines
    assert trials[0].value == max(trial.value for trial in trials)
    best = json.loads((tmp_path / tuning.BEST).read_text())
    assert best["number"] == trials[0].number
    assert best["command"].startswith("rl4co train experiment=quick ")
    assert all(value in best["command"] for value in best["overrides"])
    tuning.tune([*TINY, RATE, LAYERS], 3, tmp_path, report=lines.append)
    assert len(lines) == 3  # there were enough
    with pytest.raises(ConfigError, match="use another folder"):
        tuning.tune([*TINY, RATE], 3, tmp_path)


def test_failing_trials_end(tmp_path: Path):
    """Trials that cannot run count, so the search ends."""
    lines: list[str] = []
    heads = "+model.policy_kwargs.num_heads=choice(3,5)"
    study = tuning.tune([*TINY, heads], 2, tmp_path, report=lines.append)
    assert len(lines) == 2 and all("num_heads" in line for line in lines)
    assert tuning.best_trials(study) == [] and tuning.best_command(study) is None


def test_pruning():
    """The callback reports each validation, and ends the training when Optuna says so."""
    study = optuna.create_study(
        direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=0)
    )
    token = pruning.current_trial.set(study.ask())
    try:
        callback = pruning.TrialPruning("val/reward")
    finally:
        pruning.current_trial.reset(token)

    class State:
        fn = "fit"

    class Trainer:
        sanity_checking, should_stop, state = False, False, State()
        callback_metrics = {"val/reward": 1.0}

    trainer = Trainer()
    callback.on_validation_end(trainer, None)  # type: ignore[arg-type]
    assert not trainer.should_stop and not callback.pruned
    trainer.callback_metrics = {"val/reward": -1.0}
    callback.on_validation_end(trainer, None)  # type: ignore[arg-type]
    assert trainer.should_stop and callback.pruned and callback.values == [1.0, -1.0]
    trainer.callback_metrics = {"val/loss": 1.0}
    with pytest.raises(ConfigError, match="optimized_metric"):
        callback.on_validation_end(trainer, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["experiment=quick"], "expected an override with choice"),
        (["a=choice(1"], "choice"),
    ],
)
def test_bad_input(overrides: list[str], message: str, tmp_path: Path):
    """Nothing is written."""
    with pytest.raises(ConfigError, match=message):
        tuning.tune(overrides, 1, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_kinds_of_sweeps():
    """Integers, floats, logarithms and choices."""
    sweeps = ["a=int(interval(1,9))", "b=tag(log,interval(0.1,1))", "c=x,y"]
    space = tuning.Space.parse([*sweeps, "d=1"])
    trial = optuna.trial.FixedTrial({"a": 3, "b": 0.5, "c": "y"})
    assert space.suggest(trial) == ["a=3", "b=0.5", "c=y"] and space.fixed == ("d=1",)
    assert trial.distributions["b"].log and trial.distributions["a"].step == 1
