"""Rebuilding a model from the plain values of its checkpoint."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from omegaconf import OmegaConf
from torch import nn

from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import POMO, REINFORCE, AttentionModel, RL4COLitModule
from rl4co.models.rl.checkpointing import NotPlainError, plain


def save(runs: ModuleType, folder: Path, model: Any) -> Path:
    """A checkpoint of the model after one epoch."""
    trainer = runs.make_trainer(folder, max_epochs=1)
    trainer.fit(model)
    trainer.save_checkpoint(folder / "model.ckpt")
    return folder / "model.ckpt"


def rewards(model: Any, size: int = 16) -> torch.Tensor:
    td = model.env.reset(model.env.dataset(size, phase="test").data)
    return model.policy.eval()(td, model.env, phase="test")["reward"]


@pytest.mark.parametrize("kind", ["am", "pomo"])
def test_model_is_rebuilt_from_its_file_alone(kind: str, runs: ModuleType, tmp_path: Path) -> None:
    """Same class, weights, settings, environment and seed; ready for evaluation."""
    model = runs.make_model(kind, num_loc=7, optimizer_kwargs={"lr": 0.002})
    path = save(runs, tmp_path, model)
    for loaded in (
        type(model).load_from_checkpoint(path),
        RL4COLitModule.load_from_checkpoint(path),
    ):
        assert type(loaded) is type(model)
        assert not loaded.training
        assert loaded.env.generator.num_loc == 7
        assert loaded.batch_size == model.batch_size
        assert loaded.optimizer_kwargs == {"lr": 0.002}
        assert loaded.run_seed == 5
        for key, value in model.state_dict().items():
            same = loaded.state_dict()[key]
            assert torch.equal(value, same) if torch.is_tensor(value) else value == same
        assert torch.equal(rewards(loaded), rewards(model))


def test_loaded_model_can_be_trained_on(runs: ModuleType, tmp_path: Path) -> None:
    """Also as the model of a resumed run: the description needs no help from the caller."""
    path = save(runs, tmp_path, runs.make_model())
    loaded = AttentionModel.load_from_checkpoint(path)
    runs.make_trainer(tmp_path, max_epochs=3).fit(loaded, ckpt_path=path)
    whole = runs.make_model()
    runs.make_trainer(tmp_path, max_epochs=3).fit(whole)
    assert torch.equal(rewards(loaded), rewards(whole))


def test_environment_keeps_its_settings(runs: ModuleType, tmp_path: Path) -> None:
    env = CVRPEnv(
        generator_params={"num_loc": 6, "capacity": 25.0, "max_demand": 8},
        check_solution=False,
        val_file=["one", "two"],
        data_dir=tmp_path,
    )
    instances = env.generator(4)
    for name in ("one", "two"):
        np.savez(tmp_path / f"{name}.npz", **{k: v.numpy() for k, v in instances.items()})
    torch.manual_seed(0)
    policy = {**runs.POLICY, "normalization": "instance"}
    path = save(runs, tmp_path, POMO(env, policy_kwargs=policy, **runs.SIZES))
    loaded = POMO.load_from_checkpoint(path).env
    assert isinstance(loaded, CVRPEnv)
    assert (loaded.generator.capacity, loaded.generator.max_demand) == (25.0, 8)
    assert loaded.check_solution is False
    assert loaded.data_dir == tmp_path
    assert list(loaded.data_files["val"]) == ["one", "two"]


def test_given_arguments_replace_recorded_ones(runs: ModuleType, tmp_path: Path) -> None:
    path = save(runs, tmp_path, runs.make_model())
    env = TSPEnv(generator_params={"num_loc": 9})
    policy = runs.make_policy()
    loaded = AttentionModel.load_from_checkpoint(path, env, policy, batch_size=3)
    assert loaded.env is env
    assert loaded.policy is policy
    assert "policy_kwargs" not in loaded._init_arguments  # they were for the recorded policy
    assert loaded.batch_size == 3


def test_policy_given_as_an_object_is_described_by_its_arguments(
    runs: ModuleType, tmp_path: Path
) -> None:
    policy = runs.make_policy(tanh_clipping=5.0, temperature=0.5)
    path = save(runs, tmp_path, runs.make_model(policy=policy))
    loaded = AttentionModel.load_from_checkpoint(path)
    assert (loaded.policy.tanh_clipping, loaded.policy.temperature) == (5.0, 0.5)


class Blocks(nn.Module):
    """A network of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_own_network_has_to_be_passed(runs: ModuleType, tmp_path: Path) -> None:
    policy = runs.make_policy(encoder_network=Blocks())
    model = runs.make_model(policy=policy)
    path = save(runs, tmp_path, model)
    with pytest.raises(ConfigError, match=r"encoder_network=Blocks.*\(path, policy=\.\.\.\)"):
        AttentionModel.load_from_checkpoint(path)
    again = runs.make_policy(encoder_network=Blocks())
    loaded = AttentionModel.load_from_checkpoint(path, policy=again)
    assert loaded.policy is again
    assert torch.equal(rewards(loaded), rewards(model))


def test_own_distribution_has_to_be_passed(runs: ModuleType, tmp_path: Path) -> None:
    """A generator whose instances cannot be drawn again from plain values is not guessed."""
    env = TSPEnv(generator_params={"num_loc": 6, "loc_distribution": "cluster", "n_cluster": 2})
    torch.manual_seed(0)
    options = {"policy_kwargs": runs.POLICY, "baseline": "mean", **runs.SIZES}
    path = save(runs, tmp_path, AttentionModel(env, **options))
    with pytest.raises(ConfigError, match=r"env was an environment whose TSPGenerator.*env=\.\.\."):
        AttentionModel.load_from_checkpoint(path)
    assert AttentionModel.load_from_checkpoint(path, env=env).env is env


class OwnEnv(TSPEnv):
    """An environment that the library does not know."""


class OwnModel(AttentionModel):
    """A method that the library does not know."""


def test_own_classes(runs: ModuleType, tmp_path: Path) -> None:
    """A model class is found if it is imported; an environment must be registered or passed."""
    options = {"policy_kwargs": runs.POLICY, "baseline": "mean", **runs.SIZES}
    torch.manual_seed(0)
    path = save(runs, tmp_path, OwnModel(TSPEnv(generator_params={"num_loc": 6}), **options))
    assert type(RL4COLitModule.load_from_checkpoint(path)) is OwnModel
    env = OwnEnv(generator_params={"num_loc": 6})
    path = save(runs, tmp_path, AttentionModel(env, **options))
    with pytest.raises(ConfigError, match="env was a OwnEnv"):
        AttentionModel.load_from_checkpoint(path)
    assert AttentionModel.load_from_checkpoint(path, env=env).env is env


def test_factories_have_to_be_passed(runs: ModuleType, tmp_path: Path) -> None:
    path = save(runs, tmp_path, runs.make_model(optimizer=torch.optim.SGD))
    with pytest.raises(ConfigError, match=r"load_from_checkpoint\(path, optimizer=\.\.\.\)"):
        AttentionModel.load_from_checkpoint(path)
    loaded = AttentionModel.load_from_checkpoint(path, optimizer=torch.optim.SGD)
    assert loaded.optimizer is torch.optim.SGD


def test_wrong_class_and_wrong_file(runs: ModuleType, tmp_path: Path) -> None:
    path = save(runs, tmp_path, runs.make_model())
    with pytest.raises(FileFormatError, match=r"checkpoint of POMO in .*AttentionModel"):
        POMO.load_from_checkpoint(path)
    assert type(REINFORCE.load_from_checkpoint(path)) is AttentionModel
    content = torch.load(path, weights_only=True)
    del content["rl4co"]
    torch.save(content, path)
    with pytest.raises(FileFormatError, match="expected the description of a model"):
        AttentionModel.load_from_checkpoint(path)
    path.write_bytes(b"")
    with pytest.raises(FileFormatError, match="truncated or foreign"):
        AttentionModel.load_from_checkpoint(path)


def test_baseline_can_be_set_up_anew(runs: ModuleType, tmp_path: Path) -> None:
    """Without its state the rollout baseline is a copy of the loaded policy."""
    model = runs.make_model(baseline_kwargs={"dataset_size": 16, "bl_alpha": 1e-12})
    path = save(runs, tmp_path, model)  # never replaced: the frozen policy is the untrained one
    key = next(name for name in model.policy.state_dict() if name.endswith("weight"))
    kept = AttentionModel.load_from_checkpoint(path)
    anew = AttentionModel.load_from_checkpoint(path, load_baseline=False)

    def frozen(model: Any) -> torch.Tensor:
        return model.baseline.baseline.frozen.policy.state_dict()[key]

    assert torch.equal(frozen(kept), frozen(model))
    assert not torch.equal(frozen(kept), kept.policy.state_dict()[key])
    assert torch.equal(frozen(anew), anew.policy.state_dict()[key])


def test_plain_values() -> None:
    """Configurations, tuples, paths and numpy's numbers become plain; objects do not."""
    config = OmegaConf.create({"a": [1, {"b": 2.5}], "c": None})
    assert plain(config) == {"a": [1, {"b": 2.5}], "c": None}
    converted = plain({"t": (1, "x"), "p": Path("a") / "b", "f": np.float64(0.5), "q": True})
    assert converted == {"t": [1, "x"], "p": "a/b", "f": 0.5, "q": True}
    assert type(converted["f"]) is float
    for value in (nn.Linear(1, 1), {1: 2}, b"bytes", lambda: None, torch.zeros(1)):
        with pytest.raises(NotPlainError):
            plain(value)
