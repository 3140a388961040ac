"""Preference optimisation: losses by hand, learning, and the local search of the last epochs."""

from __future__ import annotations

import math

from typing import Any

import pytest
import torch

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import POMO, AttentionModel, SymNCO
from rl4co.models.rl.losses import best_anchored_loss, preference_loss
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 32, "num_heads": 4, "feedforward_hidden": 32, "num_encoder_layers": 1}


def log_sigmoid(x: float) -> float:
    return -math.log(1 + math.exp(-x))


def make_model(env: Any, **kwargs: Any) -> POMO:
    torch.manual_seed(0)
    return POMO(env, policy_kwargs=TINY, seed=1, **kwargs)


def test_preference_loss_by_hand():
    """Instance 0 has three pairs, instance 1 (a tie of two) two of them: five in all."""
    reward = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -4.0, -2.0]])
    likelihood = torch.tensor([[-5.0, -3.0, -6.0], [-1.0, -2.0, -8.0]], requires_grad=True)
    loss = preference_loss(reward, likelihood, alpha=0.5)
    margins = [-2.0, 1.0, 3.0, -7.0, -6.0]  # (0, 1), (0, 2), (1, 2); (2, 0), (2, 1)
    expected = -sum(log_sigmoid(0.5 * margin) for margin in margins) / 5
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    # d/dm of -log sigmoid(alpha m) is -alpha sigmoid(-alpha m); entry (1, 0) loses one pair.
    gradient = 0.5 / (1 + math.exp(0.5 * -7.0)) / 5
    assert float(likelihood.grad[1, 0]) == pytest.approx(gradient, rel=1e-4)


def test_best_anchored_loss_by_hand():
    """The best one, -2, against -3 and -4: ratios 1.5 and 2, likelihoods per step."""
    reward = torch.tensor([[-3.0, -2.0, -4.0]])
    likelihood = torch.tensor([[-6.0, -4.0, -10.0]])
    loss = best_anchored_loss(reward, likelihood, num_steps=2)
    expected = -(log_sigmoid(1.5 * 1.0) + log_sigmoid(2.0 * 3.0)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_equal_solutions_prefer_nothing():
    """Without a pair the loss and its gradient are zero, not NaN; rounding makes no pair."""
    likelihood = torch.tensor([[-1.0, -9.0]], requires_grad=True)
    for reward in ([[-2.0, -2.0]], [[-2.0, -2.0 - 1e-7]]):
        loss = preference_loss(torch.tensor(reward), likelihood)
        loss.backward()
        assert loss.item() == 0.0
    assert torch.equal(likelihood.grad, torch.zeros(1, 2))


@pytest.mark.parametrize("loss", ["po", "bopo"])
@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
def test_learns(loss, env_cls):
    model = make_model(env_cls(generator_params={"num_loc": 8}, seed=0), loss=loss)
    options = {"decode_type": "multistart_sampling"}
    assert cost_ratio(model, lambda: train_steps(model, 60, 32, 3e-3), **options) < 0.95


@pytest.mark.parametrize("env_cls", [TSPEnv, CVRPEnv])
def test_local_search_makes_pairs(env_cls, monkeypatch):
    """Of untrained solutions nearly all are improved, and the improved ones become more likely."""
    model = make_model(env_cls(generator_params={"num_loc": 8}, seed=0), loss="po")
    monkeypatch.setattr(type(model), "_is_refining", lambda self: True)
    batch = model.env.generate(16)
    loss = model.shared_step(batch, 0, "train")["loss"]
    monkeypatch.setattr(type(model), "_is_refining", lambda self: False)
    plain = model.shared_step(batch, 0, "train")["loss"]
    assert loss.item() > plain.item() + 0.1  # -log sigmoid of small margins is about 0.7
    loss.backward()
    assert all(weight.grad is not None for weight in model.policy.parameters())


def test_epochs_with_local_search():
    """Which epochs are the last ones is the trainer's to say; there are none without it."""
    model = make_model(TSPEnv(), loss="po", local_search_epochs=2)
    assert not model._is_refining()


def test_bad_settings_raise():
    env = TSPEnv(generator_params={"num_loc": 6})
    with pytest.raises(UnknownNameError, match="loss"):
        make_model(env, loss="dpo")
    with pytest.raises(UnknownNameError, match="loss"):
        SymNCO(env, policy_kwargs=TINY, loss="po")
    with pytest.raises(ConfigError, match="preference_alpha"):
        make_model(env, loss="po", preference_alpha=0.0)
    with pytest.raises(ConfigError, match="local_search_epochs"):
        make_model(env, local_search_epochs=1)
    alone = AttentionModel(env, policy_kwargs=TINY, baseline="no", loss="po")
    with pytest.raises(ConfigError, match="two solutions"):
        alone.shared_step(env.generate(4), 0, "train")
