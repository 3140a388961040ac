"""`RL4COLitModule`: settings that raise early, data that is its own, optimizers by name."""

from __future__ import annotations

import functools

from pathlib import Path
from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.data import save_tensordict_to_npz
from rl4co.envs import TSPEnv
from rl4co.models import AttentionModel
from rl4co.models.rl.optimizers import create_optimizer, create_scheduler
from tests.trainers import fit

POLICY = {"embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2, "feedforward_hidden": 16}
SIZES = {"batch_size": 4, "train_data_size": 8, "val_data_size": 4, "test_data_size": 4}


def make_model(env: TSPEnv | None = None, **options: Any) -> AttentionModel:
    env = env or TSPEnv(generator_params={"num_loc": 5})
    return AttentionModel(env, baseline="mean", policy_kwargs=POLICY, **{**SIZES, **options})


# ---------------------------------------------------------------- the caller's environment


def test_data_dir_does_not_move_the_callers_environment(tmp_path: Path) -> None:
    env = TSPEnv(generator_params={"num_loc": 5}, data_dir="mine")
    model = make_model(env, data_dir=tmp_path)
    assert model.env.data_dir == tmp_path
    assert env.data_dir == Path("mine")
    assert make_model(env).env is env


def test_default_data_does_not_change_the_callers_files(tmp_path: Path) -> None:
    """The sets are written, read by the model, and unknown to the environment it was given."""
    env = TSPEnv(generator_params={"num_loc": 5})
    model = make_model(env, data_dir=tmp_path, generate_default_data=True)
    fit(model, tmp_path)
    assert all(path.is_file() for path in model.env.data_files["val"].values())
    assert next(iter(model.env.data_files["val"])).startswith("tsp_")
    assert env.data_files == {"train": {}, "val": {}, "test": {}}


def test_environment_with_other_data_shares_all_else(tmp_path: Path) -> None:
    """One random stream for both, files of its own."""
    env = TSPEnv(generator_params={"num_loc": 5}, seed=3, val_file="a")
    twin = env.with_data(tmp_path, {"test": {"b": tmp_path / "b.npz"}})
    assert twin.data_dir == tmp_path
    assert (list(twin.data_files["val"]), list(twin.data_files["test"])) == (["a"], ["b"])
    assert (env.data_dir, env.data_files["test"]) == (Path("data"), {})
    twin.data_files["val"]["c"] = tmp_path
    assert list(env.data_files["val"]) == ["a"]
    same = TSPEnv(generator_params={"num_loc": 5}, seed=3)
    for each in (env, twin, env):
        assert torch.equal(each.generate(2)["locs"], same.generate(2)["locs"])


# ---------------------------------------------------------------- invalid settings


@pytest.mark.parametrize(
    ("name", "least"),
    [("batch_size", 1), ("val_batch_size", 1), ("test_batch_size", 1), ("train_data_size", 1),
     ("val_data_size", 0), ("test_data_size", 0)],
)  # fmt: skip
@pytest.mark.parametrize("size", [0, -3, 2.5, "8"])
def test_sizes_are_positive_integers(name: str, least: int, size: Any) -> None:
    """0 is not "the default" either; of validation and test sets it means that there is none."""
    if size == least:
        make_model(**{name: size})
        return
    message = f"expected {name} to be an integer of at least {least}, got"
    with pytest.raises(ConfigError, match=message):
        make_model(**{name: size})


def test_batch_sizes_default_to_that_of_training() -> None:
    model = make_model(val_batch_size=None, test_batch_size=7)
    assert (model.val_batch_size, model.test_batch_size) == (4, 7)


@pytest.mark.parametrize("phase", ["train", "val"])
def test_misspelt_metrics_raise_at_the_first_step(phase: str, tmp_path: Path) -> None:
    """Not dropped without a word."""
    model = make_model(metrics={phase: ["loss", "rewrd"] if phase == "train" else ["rewrd"]})
    message = rf"no {phase} metric 'rewrd'; did you mean 'reward'\? known: .*log_likelihood"
    with pytest.raises(UnknownNameError, match=message):
        fit(model, tmp_path)


def test_metrics_of_ones_choice(tmp_path: Path) -> None:
    """Any output can be logged; the other phases keep their defaults."""
    trainer = fit(make_model(metrics={"train": ["loss", "log_likelihood"]}), tmp_path)
    logged = set(trainer.callback_metrics)
    assert {"train/loss", "train/log_likelihood", "val/reward"} <= logged
    assert "train/reward" not in logged


def test_metrics_are_lists_by_phase() -> None:
    with pytest.raises(UnknownNameError, match="no phase in metrics 'valid'; did you mean 'val'"):
        make_model(metrics={"valid": ["reward"]})
    with pytest.raises(ConfigError, match=r"a list of names as metrics\['train'\], got 'reward'"):
        make_model(metrics={"train": "reward"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "Adan"}, r"no optimizer 'Adan'; did you mean 'Adam'\?"),
        ({"optimizer": "Optimizer"}, "no optimizer 'Optimizer'"),
        ({"optimizer": nn.Linear}, "a name of torch.optim, a class or a factory as optimizer"),
        ({"optimizer": 3}, "a class or a factory as optimizer, got 3"),
        ({"optimizer_kwargs": {"learning_rate": 1e-3}}, r"arguments of Adam \(lr, .*learning_rate"),
        ({"optimizer_kwargs": {"lr": -1.0}}, "Invalid learning rate: -1"),
        ({"optimizer_kwargs": {"lr": "1e-3"}}, r"arguments of Adam .*got \{'lr': '1e-3'\}"),
        ({"lr_scheduler": "StepLr"}, r"no learning-rate scheduler 'StepLr'; did you mean 'StepLR'"),
        ({"lr_scheduler": "LRScheduler"}, "no learning-rate scheduler 'LRScheduler'"),
        ({"lr_scheduler": "Tensor"}, "no learning-rate scheduler 'Tensor'"),
        ({"lr_scheduler": 3}, "got 3"),
        ({"lr_scheduler": "StepLR"}, r"arguments of StepLR \(step_size, gamma.*missing 1 required"),
        (
            {"lr_scheduler": "StepLR", "lr_scheduler_kwargs": {"step": 3}},
            r"arguments of StepLR \(step_size.*got \{'step': 3\}",
        ),
        ({"lr_scheduler_interval": "epochs"}, r"no lr_scheduler_interval 'epochs'; did you mean"),
    ],
)
def test_optimization_raises_when_the_model_is_built(options: dict[str, Any], message: str) -> None:
    """Not when training starts."""
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        make_model(**options)


def test_unknown_names_list_only_what_fits() -> None:
    """Optimizers among optimizers, schedulers among schedulers."""
    with pytest.raises(UnknownNameError) as caught:
        make_model(optimizer="x")
    known = set(caught.value.known)
    assert {"Adam", "SGD", "RMSprop"} <= known
    assert all(issubclass(getattr(torch.optim, name), torch.optim.Optimizer) for name in known)
    with pytest.raises(UnknownNameError) as caught:
        make_model(lr_scheduler="x")
    assert {"MultiStepLR", "ReduceLROnPlateau"} <= set(caught.value.known)
    assert not {"Counter", "Tensor", "Optimizer", "LRScheduler"} & set(caught.value.known)


# ---------------------------------------------------------------- what is built


@pytest.mark.parametrize(
    "optimizer", ["SGD", torch.optim.SGD, functools.partial(torch.optim.SGD, momentum=0.5)]
)
def test_optimizers_by_name_class_and_factory(optimizer: Any) -> None:
    built = make_model(optimizer=optimizer, optimizer_kwargs={"lr": 0.5}).configure_optimizers()
    assert isinstance(built, torch.optim.SGD)
    assert built.defaults["lr"] == 0.5


def test_factories_are_not_tried() -> None:
    """They may do more than build; only training calls them."""
    calls: list[int] = []

    def factory(parameters: Any, **kwargs: Any) -> torch.optim.Optimizer:
        calls.append(1)
        return torch.optim.SGD(parameters, **kwargs)

    model = make_model(optimizer=factory, lr_scheduler=lambda optimizer: calls.append(2))
    assert calls == []
    model.configure_optimizers()
    assert calls == [1, 2]


def test_schedule_of_the_paper() -> None:
    """MultiStepLR without arguments: a tenth after epochs 80 and 95."""
    optimizer = create_optimizer([nn.Parameter(torch.zeros(1))], "SGD", {"lr": 1.0})
    scheduler = create_scheduler(optimizer, "MultiStepLR", None)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[79] == 1.0
    assert rates[80] == rates[94] == pytest.approx(0.1)
    assert rates[95] == pytest.approx(0.01)


# ---------------------------------------------------------------- training files


def test_training_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and the instances that baselines draw come from the same tensors in memory."""
    generated = TSPEnv(generator_params={"num_loc": 5}).generator(8)
    save_tensordict_to_npz(generated, tmp_path / "train.npz")
    env = TSPEnv(generator_params={"num_loc": 5}, train_file=str(tmp_path / "train.npz"))
    read: list[Any] = []
    load = TSPEnv.load_data
    monkeypatch.setattr(
        TSPEnv, "load_data", lambda self, path: read.append(path) or load(self, path)
    )
    model = make_model(env)
    for seed in range(3):
        drawn = model.draw_instances(6, torch.Generator().manual_seed(seed))
        same = (drawn["locs"][:, None] == generated["locs"]).flatten(2).all(-1)  # [6, 8]
        assert bool(same.any(-1).all())
    assert len(read) == 1
    fit(model, tmp_path)  # a new run reads anew, once
    model.draw_instances(6, torch.Generator())
    assert len(read) == 2


def test_several_training_files_become_one_set(tmp_path: Path):
    """Instances of all of them, in a row; of different sizes they cannot share a batch."""
    env = TSPEnv(generator_params={"num_loc": 5})
    parts = [env.generator(4), env.generator(6)]
    files = [str(tmp_path / f"{name}.npz") for name in "ab"]
    for part, file in zip(parts, files, strict=True):
        save_tensordict_to_npz(part, file)
    options = {"train_data_size": 100, "batch_size": 5}
    model = make_model(TSPEnv(generator_params={"num_loc": 5}, train_file=files), **options)
    assert torch.equal(model._training_set().data["locs"], torch.cat([p["locs"] for p in parts]))
    assert fit(model, tmp_path).global_step == 2
    save_tensordict_to_npz(TSPEnv(generator_params={"num_loc": 7}).generator(4), files[1])
    model = make_model(TSPEnv(train_file=files), **options)
    with pytest.raises(ConfigError, match=r"same keys and sizes, got a: .*5, 2.*; b: .*7, 2"):
        model._training_set()
