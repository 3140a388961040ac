"""Rebuilding a model from the plain values of its checkpoint."""

from __future__ import annotations

import sys

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from torch import nn

from rl4co.core.arguments import RecordsArguments
from rl4co.core.errors import ConfigError, FileFormatError
from rl4co.core.registry import ENVS, MODELS
from rl4co.data import TensorDictDataset
from rl4co.envs import CVRPEnv, TSPEnv, TSPGenerator
from rl4co.models import (
    POMO,
    REINFORCE,
    AttentionModel,
    AttentionModelPolicy,
    RL4COLitModule,
    load_pretrained,
)
from rl4co.models.rl import checkpointing
from rl4co.models.rl.checkpointing import describe_model
from tests.unit.training import runs


def save(folder: Path, model: Any) -> Path:
    """A checkpoint of the model after one epoch."""
    trainer = runs.make_trainer(folder, max_epochs=1)
    trainer.fit(model)
    trainer.save_checkpoint(folder / "model.ckpt")
    return folder / "model.ckpt"


def rewards(model: Any, size: int = 16) -> torch.Tensor:
    td = model.env.reset(model.env.dataset(size, phase="test").data)
    return model.policy.eval()(td, model.env, phase="test")["reward"]


@pytest.mark.parametrize("kind", ["am", "pomo"])
def test_model_is_rebuilt_from_its_file_alone(kind: str, tmp_path: Path) -> None:
    """Same class, weights, settings, environment and seed; ready for evaluation."""
    model = runs.make_model(kind, num_loc=7, optimizer_kwargs={"lr": 0.002})
    path = save(tmp_path, model)
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


def test_loaded_model_can_be_trained_on(tmp_path: Path) -> None:
    """Also as the model of a resumed run: the description needs no help from the caller."""
    path = save(tmp_path, runs.make_model())
    loaded = AttentionModel.load_from_checkpoint(path)
    runs.make_trainer(tmp_path, max_epochs=3).fit(loaded, ckpt_path=path)
    whole = runs.make_model()
    runs.make_trainer(tmp_path, max_epochs=3).fit(whole)
    assert torch.equal(rewards(loaded), rewards(whole))


def test_environment_keeps_its_settings(tmp_path: Path) -> None:
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
    path = save(tmp_path, POMO(env, policy_kwargs=policy, **runs.SIZES))
    loaded = POMO.load_from_checkpoint(path).env
    assert isinstance(loaded, CVRPEnv)
    assert (loaded.generator.capacity, loaded.generator.max_demand) == (25.0, 8)
    assert loaded.check_solution is False
    assert loaded.data_dir == tmp_path
    assert list(loaded.data_files["val"]) == ["one", "two"]


def test_given_arguments_replace_recorded_ones(tmp_path: Path) -> None:
    path = save(tmp_path, runs.make_model())
    env = TSPEnv(generator_params={"num_loc": 9})
    policy = runs.make_policy()
    loaded = AttentionModel.load_from_checkpoint(path, env, policy, batch_size=3)
    assert loaded.env is env
    assert loaded.policy is policy
    assert "policy_kwargs" not in loaded._init_arguments  # they were for the recorded policy
    assert loaded.batch_size == 3


def test_policy_given_as_an_object_is_described_by_its_arguments(tmp_path: Path) -> None:
    policy = runs.make_policy(tanh_clipping=5.0, temperature=0.5)
    path = save(tmp_path, runs.make_model(policy=policy))
    loaded = AttentionModel.load_from_checkpoint(path)
    assert (loaded.policy.tanh_clipping, loaded.policy.temperature) == (5.0, 0.5)


class Blocks(nn.Module):
    """A custom network."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_own_network_has_to_be_passed(tmp_path: Path) -> None:
    policy = runs.make_policy(encoder_network=Blocks())
    model = runs.make_model(policy=policy)
    path = save(tmp_path, model)
    with pytest.raises(ConfigError, match=r"encoder_network=Blocks.*\(path, policy=\.\.\.\)"):
        AttentionModel.load_from_checkpoint(path)
    again = runs.make_policy(encoder_network=Blocks())
    loaded = AttentionModel.load_from_checkpoint(path, policy=again)
    assert loaded.policy is again
    assert torch.equal(rewards(loaded), rewards(model))


@pytest.mark.parametrize("how", ["parameters", "generator"])
def test_distributions_come_back(how: str, tmp_path: Path) -> None:
    """A generator is rebuilt from its own arguments, however the environment got it."""
    params = {"num_loc": 6, "loc_distribution": "cluster", "n_cluster": 2}
    env = TSPEnv(TSPGenerator(**params)) if how == "generator" else TSPEnv(generator_params=params)
    torch.manual_seed(0)
    options = {"policy_kwargs": runs.POLICY, "baseline": "mean", **runs.SIZES}
    path = save(tmp_path, AttentionModel(env, **options))
    assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []
    loaded = AttentionModel.load_from_checkpoint(path).env
    assert type(loaded.generator) is TSPGenerator
    drawn = [each.generator(4, rng=torch.Generator().manual_seed(3)) for each in (env, loaded)]
    assert torch.equal(drawn[0]["locs"], drawn[1]["locs"])
    uniform = TSPGenerator(num_loc=6)(4, rng=torch.Generator().manual_seed(3))
    assert not torch.equal(drawn[1]["locs"], uniform["locs"])


class OwnGenerator(TSPGenerator):
    """A generator that the library does not know."""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            {"generator_params": {"num_loc": 6, "loc_distribution": lambda size: torch.rand(size)}},
            r"a TSPEnv with generator_params=\{loc_distribution: function\}",
        ),
        ({"generator": OwnGenerator(num_loc=6)}, "a OwnGenerator"),
        (
            {"dataset_cls": type("OwnDataset", (TensorDictDataset,), {})},
            "a TSPEnv with dataset_cls=the class OwnDataset",
        ),
    ],
    ids=["distribution", "generator", "data set"],
)
def test_own_parts_of_an_environment_have_to_be_passed(
    arguments: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    """What plain values cannot describe is asked for, not guessed."""
    env = TSPEnv(**arguments)
    torch.manual_seed(0)
    options = {"policy_kwargs": runs.POLICY, "baseline": "mean", **runs.SIZES}
    path = save(tmp_path, AttentionModel(env, **options))
    with pytest.raises(ConfigError, match=rf"env was {reason}.*env=\.\.\."):
        AttentionModel.load_from_checkpoint(path)
    assert AttentionModel.load_from_checkpoint(path, env=env).env is env


def test_registered_environments_of_others_are_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the name under which they are registered."""

    class PluginEnv(TSPEnv):
        name = "plugin_tsp"

    monkeypatch.setattr(ENVS, "_entries", {**dict(ENVS.items()), "plugin_tsp": PluginEnv})
    torch.manual_seed(0)
    policy = runs.make_policy()
    model = AttentionModel(PluginEnv(check_solution=False), policy, baseline="mean", **runs.SIZES)
    loaded = AttentionModel.load_from_checkpoint(save(tmp_path, model)).env
    assert type(loaded) is PluginEnv
    assert loaded.check_solution is False


def test_device_of_an_environment_is_not_recorded() -> None:
    """A checkpoint of a GPU opens on a machine without one."""
    model = runs.make_model()
    model._init_arguments["env"] = TSPEnv(device="cpu", seed=4)
    described = describe_model(model)["arguments"]["env"]["object"]
    assert described["arguments"] == {"seed": {"value": 4}}


class OwnEnv(TSPEnv):
    """An environment that the library does not know."""


class OwnModel(AttentionModel):
    """A method that the library does not know."""


def test_models_of_plugins_are_found_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing a package is what allows its classes; nothing else has to be said."""
    parts: dict[str, Any] = {"__module__": "third_party"}
    policy_cls: Any = type("PluginPolicy", (type(runs.make_policy()),), parts)
    model_cls: Any = type("PluginModel", (AttentionModel,), parts)
    package = ModuleType("third_party")
    vars(package).update(PluginPolicy=policy_cls, PluginModel=model_cls)
    monkeypatch.setitem(sys.modules, "third_party", package)
    saved = policy_cls(env_name="tsp", **runs.POLICY).save_pretrained(tmp_path / "saved")
    model = model_cls(TSPEnv(), policy_kwargs=runs.POLICY, baseline="mean", **runs.SIZES)
    path = save(tmp_path, model)
    monkeypatch.setattr(checkpointing, "_subclasses", lambda cls: [])  # as if not imported yet
    with pytest.raises(ConfigError, match="PluginPolicy"):
        load_pretrained(saved)
    with pytest.raises(FileFormatError, match="got one of PluginModel"):
        RL4COLitModule.load_from_checkpoint(path)
    monkeypatch.setattr(MODELS, "plugins", lambda: [model_cls])
    assert type(load_pretrained(saved)) is policy_cls
    assert type(RL4COLitModule.load_from_checkpoint(path)) is model_cls


class Doubled(nn.Module, RecordsArguments):
    """Blocks that remember their arguments."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(16, 16), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.layer(x)


class OwnPolicy(AttentionModelPolicy):
    """A subclass with plain arguments."""


@pytest.mark.parametrize("as_path", [False, True])
def test_classes_that_the_caller_allows(tmp_path: Path, as_path: bool) -> None:
    """The policy's class and a part of it, without building either again."""
    policy = OwnPolicy(encoder_network=Doubled(2.0), **runs.POLICY)
    model = runs.make_model(policy=policy)
    path = save(tmp_path, model)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(path) == []
    classes: list[Any] = [OwnPolicy, Doubled]
    if as_path:
        classes = [f"{each.__module__}.{each.__qualname__}" for each in classes]
    for some in ([], classes[:1], classes[1:]):
        with pytest.raises(ConfigError, match=r"policy=\.\.\..*allow_classes="):
            AttentionModel.load_from_checkpoint(path, allow_classes=some)
    loaded = AttentionModel.load_from_checkpoint(path, allow_classes=classes)
    assert type(loaded.policy) is OwnPolicy
    assert loaded.policy.encoder.net.factor == 2.0
    assert torch.equal(rewards(loaded), rewards(model))


def test_own_classes(tmp_path: Path) -> None:
    """A model class is found if it is imported; an environment must be registered or passed."""
    options = {"policy_kwargs": runs.POLICY, "baseline": "mean", **runs.SIZES}
    torch.manual_seed(0)
    path = save(tmp_path, OwnModel(TSPEnv(generator_params={"num_loc": 6}), **options))
    assert type(RL4COLitModule.load_from_checkpoint(path)) is OwnModel
    env = OwnEnv(generator_params={"num_loc": 6})
    path = save(tmp_path, AttentionModel(env, **options))
    with pytest.raises(ConfigError, match="env was a OwnEnv"):
        AttentionModel.load_from_checkpoint(path)
    assert AttentionModel.load_from_checkpoint(path, env=env).env is env


def test_factories_have_to_be_passed(tmp_path: Path) -> None:
    path = save(tmp_path, runs.make_model(optimizer=torch.optim.SGD))
    with pytest.raises(ConfigError, match=r"load_from_checkpoint\(path, optimizer=\.\.\.\)"):
        AttentionModel.load_from_checkpoint(path)
    loaded = AttentionModel.load_from_checkpoint(path, optimizer=torch.optim.SGD)
    assert loaded.optimizer is torch.optim.SGD


def test_wrong_class_and_wrong_file(tmp_path: Path) -> None:
    path = save(tmp_path, runs.make_model())
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


def test_baseline_can_be_set_up_anew(tmp_path: Path) -> None:
    """Without its state the rollout baseline is a copy of the loaded policy."""
    model = runs.make_model(baseline_kwargs={"dataset_size": 16, "bl_alpha": 1e-12})
    path = save(tmp_path, model)  # never replaced: the frozen policy is the untrained one
    key = next(name for name in model.policy.state_dict() if name.endswith("weight"))
    kept = AttentionModel.load_from_checkpoint(path)
    anew = AttentionModel.load_from_checkpoint(path, load_baseline=False)

    def frozen(model: Any) -> torch.Tensor:
        return model.baseline.baseline.frozen.policy.state_dict()[key]

    assert torch.equal(frozen(kept), frozen(model))
    assert not torch.equal(frozen(kept), kept.policy.state_dict()[key])
    assert torch.equal(frozen(anew), anew.policy.state_dict()[key])
