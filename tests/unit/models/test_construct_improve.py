"""ConstructAndImprove: who begins with what, who learns from what, resuming, learning."""

from __future__ import annotations

import copy

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import ModelCheckpoint

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator
from rl4co.envs import PDPRuinRepairEnv, TSPkoptEnv
from rl4co.models import (
    AttentionModelPolicy,
    ConstructAndImprove,
    HeterogeneousAttentionModelPolicy,
    N2SPolicy,
    NeuOptPolicy,
)
from tests.learning import paired_t
from tests.trainers import fit
from tests.unit.models.test_n_step_ppo import SIZES, STEPS, TINY, Kill

PROBLEMS: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "tsp": (TSPkoptEnv, NeuOptPolicy, AttentionModelPolicy, {"k_max": 4}),
    "pdp": (PDPRuinRepairEnv, N2SPolicy, HeterogeneousAttentionModelPolicy, {}),
}


def make_model(
    problem: str = "tsp", size: int = 6, width: int = 16, **options: Any
) -> ConstructAndImprove:
    torch.manual_seed(0)
    env_cls, policy_cls, constructor_cls, params = PROBLEMS[problem]
    env = env_cls(generator_params={"num_loc": size}, **params)
    network = {**TINY, "embed_dim": width, "feedforward_hidden": width}
    constructor = constructor_cls(env_name=problem, **network)
    settings = {**SIZES, **STEPS, "seed": 5, **options}
    return ConstructAndImprove(env, policy_cls(**TINY), constructor, **settings)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_improvement_begins_with_the_best_start(problem: str):
    """Of all greedy solutions; no parameter changes."""
    model = make_model(problem)
    instances = model.env.generator(3, rng=derive_generator(0))
    state = model.first_state(instances, derive_generator(1))
    env = model.env.constructive_env
    with torch.no_grad():
        out = model.constructor.eval()(env.reset(instances), env, decode_type="multistart_greedy")
    best = -out["reward"].view(-1, 3).max(0).values
    torch.testing.assert_close(state["cost_bsf"], best)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_all_parts_learn(problem: str, tmp_path: Path):
    """Of each batch one update of the constructor, and those of n-step PPO, each with its rate."""
    model = make_model(problem, lr_constructor=1e-3)
    rates = [group["lr"] for group in model.trainable_parameters()]
    assert rates == [model.lr_policy, model.lr_critic, 1e-3]
    weights = [id(weight) for group in model.trainable_parameters() for weight in group["params"]]
    assert sorted(weights) == sorted(id(weight) for weight in model.parameters())
    before = copy.deepcopy(model.state_dict())
    trainer = fit(model, tmp_path)
    assert trainer.global_step == 3 * (1 + 2 * 3)  # batches; segments of three inner epochs
    for part in ("constructor.", "policy.encoder", "policy.decoder", "policy.critic"):
        names = [name for name in before if name.startswith(part)]
        assert any(not torch.equal(before[name], model.state_dict()[name]) for name in names), part
    metrics = trainer.callback_metrics
    assert float(metrics["train/reward"]) >= float(metrics["train/constructed"])


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_killed_run_is_bit_equal(tmp_path: Path):
    """Both policies come back with the model."""
    whole = make_model()
    fit(whole, tmp_path / "whole", max_epochs=2)
    saving = ModelCheckpoint(tmp_path / "ckpt", save_last=True, every_n_train_steps=7)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(make_model(), tmp_path, max_epochs=2, callbacks=[saving, Kill(1, 1)])
    resumed = make_model()
    torch.manual_seed(99)
    fit(resumed, tmp_path, tmp_path / "ckpt" / "last.ckpt", max_epochs=2)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key
    loaded = ConstructAndImprove.load_from_checkpoint(tmp_path / "ckpt" / "last.ckpt")
    assert isinstance(loaded.constructor, AttentionModelPolicy)


def test_a_constructor_that_improves_raises():
    with pytest.raises(ConfigError, match="makes solutions from nothing, got a NeuOptPolicy"):
        ConstructAndImprove(TSPkoptEnv(k_max=4), NeuOptPolicy(**TINY), NeuOptPolicy(**TINY))
    with pytest.raises(ConfigError, match="makes solutions from nothing, got a int"):
        ConstructAndImprove(TSPkoptEnv(k_max=4), NeuOptPolicy(**TINY), 3)
    other = AttentionModelPolicy(env_name="pdp", **TINY)
    with pytest.raises(ConfigError, match=r"a constructor for tsp, .*, got one for pdp"):
        ConstructAndImprove(TSPkoptEnv(k_max=4), NeuOptPolicy(**TINY), other)


@pytest.mark.learning
def test_construction_improves(require, tmp_path: Path):
    """Solutions with which improvement begins become shorter, instance by instance."""
    model = make_model(
        size=20, width=64, batch_size=32, train_data_size=32 * 40, lr_constructor=1e-3,
        n_step=1, T_train=1, ppo_epochs=1,
    )  # fmt: skip
    instances = model.env.generator(512, rng=derive_generator("judged"))
    before = model.first_state(instances, derive_generator(0))["cost_bsf"]
    fit(model, tmp_path, limit_val_batches=0)
    gained = before - model.first_state(instances, derive_generator(0))["cost_bsf"]
    require("t of the gain", paired_t(gained), above=4.0)
