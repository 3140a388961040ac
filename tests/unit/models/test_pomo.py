"""POMO: the shared baseline by hand, the metrics of validation by brute force, and learning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.data.augment import StateAugmentation
from rl4co.envs import CVRPEnv, MDCPDPEnv, TSPEnv
from rl4co.models import POMO, AttentionModelPolicy, SymNCO
from tests.learning import cost_ratio, train_steps

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}


def make_model(env: Any, **kwargs: Any) -> POMO:
    return POMO(env, policy_kwargs=TINY, **{"seed": 5, **kwargs})


@pytest.fixture(params=["tsp", "cvrp"])
def env(request):
    cls = {"tsp": TSPEnv, "cvrp": CVRPEnv}[request.param]
    return cls(generator_params={"num_loc": 6}, seed=11)


class FixedPolicy(torch.nn.Module):
    """Returns given rewards and likelihoods, and remembers how it was called."""

    def __init__(self, reward: torch.Tensor, log_likelihood: torch.Tensor) -> None:
        super().__init__()
        self.reward, self.log_likelihood = reward, torch.nn.Parameter(log_likelihood)
        self.calls: list[dict[str, Any]] = []

    def forward(self, td, env, **kwargs):
        self.calls.append({"batch": td.batch_size[0], **kwargs})
        return {"reward": self.reward, "log_likelihood": self.log_likelihood + 0.0}


# ---------------------------------------------------------------- training


def test_loss_by_hand():
    """Rows are starts outermost: r(s, b) = (1, 10), (2, 20), (3, 30) for s = 0, 1, 2.

    Baselines 2 and 20, so advantages (-1, -10), (0, 0), (1, 10). With log-likelihoods
    (.1, .2), (.3, .4), (.5, .6): sum = -0.1 - 2 + 0 + 0 + 0.5 + 6 = 4.4, loss = -4.4 / 6.
    A baseline over the wrong axis would give another number.
    """
    env = TSPEnv(generator_params={"num_loc": 3})
    policy = FixedPolicy(
        torch.tensor([1.0, 10.0, 2.0, 20.0, 3.0, 30.0]),
        torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    )
    out = POMO(env, policy).shared_step(env.generate(2), 0, "train")
    assert out["loss"].item() == pytest.approx(-4.4 / 6)
    assert float(out["reward"]) == pytest.approx(11.0)
    assert float(out["bl_val"]) == pytest.approx(11.0)
    (call,) = policy.calls
    assert call["batch"] == 2, "training does not augment"
    assert call["decode_type"] == "multistart_sampling"
    assert call["num_starts"] == 3
    # The gradient of a log-likelihood is minus its advantage, divided by six.
    out["loss"].backward()
    expected = -torch.tensor([-1.0, -10.0, 0.0, 0.0, 1.0, 10.0]) / 6
    torch.testing.assert_close(policy.log_likelihood.grad, expected)


def test_training_steps_repeat(env):
    """The same seed, epoch and batch number draw the same actions; another number others."""
    batch, model = env.generate(4), make_model(env)

    def loss(index: int) -> float:
        return model.shared_step(batch, index, "train")["loss"].item()

    assert loss(0) == loss(0)
    assert loss(0) != loss(1)
    model.run_seed = 6
    other = loss(0)
    model.run_seed = 5
    assert loss(0) != other


def test_number_of_starts(env):
    """As many as the instance offers (never the generator), or as many as asked for."""
    larger = type(env)(generator_params={"num_loc": 9})
    for num_starts, expected in ((None, 9), (4, 4)):
        model = make_model(env, num_starts=num_starts)
        seen = []
        forward = model.policy.forward
        model.policy.forward = lambda td, env, **kw: (
            seen.append(kw["num_starts"]) or forward(td, env, **kw)  # noqa: B023
        )
        model.shared_step(larger.generate(2), 0, "train")
        assert seen == [expected]


# ---------------------------------------------------------------- validation


@torch.no_grad()
def test_metrics_are_best_over_starts_and_augmentations(env):
    """Each number recomputed with single rollouts of single augmentations.

    An axis gathered wrongly mixes instances: the means of maxima then differ.
    """
    model = make_model(env, num_augment=8).eval()
    batch = env.generate(5)
    out = model.shared_step(batch, 0, "val")
    td = env.reset(batch)
    copies = StateAugmentation(num_augment=8, augment_fn="dihedral8")(td)
    num_starts = env.get_num_starts(td)
    rewards = torch.empty(5, 8, num_starts)
    for a in range(8):
        copy = copies[a * 5 : (a + 1) * 5]
        starts = env.start_actions(dict(copy.items()), num_starts)  # [B, S]
        for s in range(num_starts):
            solved = model.policy(
                copy,
                env,
                decode_type="multistart_greedy",
                num_starts=1,
                select_start_nodes_fn=lambda *_, first=starts[:, s]: first,
            )
            # Symmetries keep lengths: the reward on the original instance is the same.
            torch.testing.assert_close(
                env.get_reward(td, solved["actions"]), solved["reward"], atol=1e-5, rtol=1e-5
            )
            rewards[:, a, s] = solved["reward"]
    assert float(out["reward"]) == pytest.approx(float(rewards.mean()), abs=1e-5)
    best_start = [max(rewards[b, 0].tolist()) for b in range(5)]
    best = [max(rewards[b].flatten().tolist()) for b in range(5)]
    assert float(out["max_reward"]) == pytest.approx(sum(best_start) / 5, abs=1e-5)
    assert float(out["max_aug_reward"]) == pytest.approx(sum(best) / 5, abs=1e-5)
    assert float(out["max_aug_reward"]) > float(out["max_reward"]) > float(out["reward"])


@pytest.mark.parametrize("phase", ["val", "test"])
def test_metrics_by_hand(phase):
    """Two instances, two augmentations, two starts; row (s * A + a) * B + b.

    b = 0: a = 0 has (1, 5), a = 1 has (7, 2). b = 1: (-3, -4), (-9, -1).
    Best start of the original: 5 and -3, mean 1. Best of all: 7 and -1, mean 3. Mean -0.25.
    """
    env = TSPEnv(generator_params={"num_loc": 4})
    reward = torch.tensor([1.0, -3.0, 7.0, -9.0, 5.0, -4.0, 2.0, -1.0])
    policy = FixedPolicy(reward, torch.zeros(8))
    model = POMO(env, policy, num_augment=2, num_starts=2)
    out = model.shared_step(env.generate(2), 0, phase)
    assert float(out["max_reward"]) == 1.0
    assert float(out["max_aug_reward"]) == 3.0
    assert float(out["reward"]) == -0.25
    assert "loss" not in out
    (call,) = policy.calls
    assert call["batch"] == 4, "every instance twice"
    assert call["decode_type"] == "multistart_greedy"
    assert call["phase"] == phase


def test_metrics_without_the_original_instance():
    """The rewards above, but no augmentation is the instance: none of them is singled out.

    Best starts (5, 7) and (-3, -1), means 6 and -2: 2 on average.
    """
    env = TSPEnv(generator_params={"num_loc": 4})
    reward = torch.tensor([1.0, -3.0, 7.0, -9.0, 5.0, -4.0, 2.0, -1.0])
    policy = FixedPolicy(reward, torch.zeros(8))
    model = POMO(env, policy, num_augment=2, num_starts=2, first_aug_identity=False)
    out = model.shared_step(env.generate(2), 0, "val")
    assert float(out["max_reward"]) == 2.0
    assert float(out["max_aug_reward"]) == 3.0


@torch.no_grad()
def test_without_augmentation(env):
    """The best of all is the best start."""
    model = make_model(env, num_augment=1).eval()
    assert model.augment is None
    out = model.shared_step(env.generate(3), 0, "val")
    assert float(out["max_aug_reward"]) == float(out["max_reward"])


# ---------------------------------------------------------------- settings


def test_default_policy_has_the_papers_settings():
    """Six layers, instance normalisation, no graph context; the user's settings win."""
    policy = POMO(TSPEnv()).policy
    assert len(policy.encoder.net.layers) == 6
    assert isinstance(policy.encoder.net.layers[0].norm_attention, torch.nn.InstanceNorm1d)
    assert policy.decoder.project_fixed_context is None
    mine = POMO(CVRPEnv(), policy_kwargs={**TINY, "use_graph_context": True}).policy
    assert mine.env_name == "cvrp"
    assert len(mine.encoder.net.layers) == 1
    assert mine.decoder.project_fixed_context is not None


def test_settings(env):
    """A policy is used as it is, arguments are left alone, and no augmentation is 0 or 1."""
    policy, kwargs = AttentionModelPolicy(env_name=env.name, **TINY), dict(TINY)
    assert POMO(env, policy).policy is policy
    assert POMO(env, policy_kwargs=kwargs, num_augment=0).augment is None
    assert kwargs == TINY


@pytest.mark.parametrize(
    ("settings", "error", "name"),
    [
        ({"policy": nn.Identity()}, ConfigError, "policy_kwargs"),
        ({"baseline": "rollout"}, ConfigError, "'shared' for POMO"),
        ({"num_augment": -1}, ConfigError, "no augmentation"),
        ({"num_starts": 0}, ConfigError, "no augmentation"),
        ({"augment_fn": "dihedral"}, UnknownNameError, "did you mean 'dihedral8'"),
    ],
    ids=str,
)
def test_bad_settings(settings, error, name):
    with pytest.raises(error, match=name):
        make_model(TSPEnv(), **settings)


@pytest.mark.parametrize("cls", [POMO, SymNCO])
def test_augmentation_that_changes_costs(cls):
    """Rotations do not keep Manhattan lengths, reflections do."""
    env = MDCPDPEnv(dist_mode="L1", generator_params={"num_loc": 6})
    with pytest.raises(UnsupportedError, match="use 'dihedral8'"):
        cls(env, augment_fn="symmetric")
    cls(env, augment_fn="dihedral8", num_augment=8)


def test_augmentations_by_function(env):
    """A function of the repeated coordinates; here one that changes nothing."""
    calls = []

    def nothing(xy, num_augment):
        calls.append((xy.shape[0], num_augment))
        return xy

    model = make_model(env, num_augment=3, augment_fn=nothing).eval()
    with torch.no_grad():
        out = model.shared_step(env.generate(2), 0, "val")
    assert calls == [(6, 3)]
    assert float(out["max_aug_reward"]) == pytest.approx(float(out["max_reward"]), abs=1e-6)


# ---------------------------------------------------------------- learning


@pytest.mark.learning
def test_training_improves(require):
    env = CVRPEnv(generator_params={"num_loc": 10})
    settings = {**TINY, "embed_dim": 32, "num_heads": 4}
    model = POMO(env, policy_kwargs=settings, num_augment=1, seed=2)
    ratio = cost_ratio(
        model, lambda: train_steps(model, 50, 32, 2e-3), decode_type="multistart_sampling"
    )
    require("cost after / before", ratio, below=0.88)
