"""A2C: the loss by hand, groups of the optimizer, gradients that do not mix, and learning."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import (
    ConfigError,
    UnknownArgumentError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.envs import TSPEnv
from rl4co.models import A2C, AttentionModelPolicy, CriticNetwork
from rl4co.models.rl.critic import create_critic_from_actor
from tests.learning import cost_ratio, expected_cost
from tests.trainers import fit

TINY = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1}
SIZES = {"batch_size": 8, "train_data_size": 16, "val_data_size": 8, "test_data_size": 8}


def make_model(**options: Any) -> A2C:
    env = TSPEnv(generator_params={"num_loc": 5})
    policy = options.pop("policy", None) or AttentionModelPolicy(**TINY)
    return A2C(env, policy, **{**SIZES, "seed": 3, **options})


class FixedPolicy(nn.Module):
    """Given rewards, and log-likelihoods that learn."""

    def __init__(self) -> None:
        super().__init__()
        self.log_likelihood = nn.Parameter(torch.tensor([0.5, -1.0]))

    def forward(self, td, env, **options):
        return {"reward": torch.tensor([3.0, 5.0]), "log_likelihood": self.log_likelihood + 0.0}


class FixedCritic(CriticNetwork):
    """A learned constant."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.constant = nn.Parameter(torch.tensor(1.0))

    def forward(self, td, hidden=None):
        return self.constant.expand(td.batch_size)


def test_loss_by_hand():
    """Rewards 3 and 5, value 1: advantages 2 and 4.

    Policy: -(2 · 0.5 + 4 · (-1)) / 2 = 1.5. Critic: (2² + 4²) / 2 = 10. Gradients: of the
    log-likelihoods -2 / 2 and -4 / 2, of the value 2 · ((1 - 3) + (1 - 5)) / 2 = -6.
    """
    model = make_model(policy=FixedPolicy(), critic=FixedCritic())
    out = model.shared_step(model.env.generate(2), 0, "train")
    assert out["loss"].item() == pytest.approx(11.5)
    out["loss"].backward()
    assert model.policy.log_likelihood.grad.tolist() == [-1.0, -2.0]
    assert model.baseline.critic.constant.grad.item() == pytest.approx(-6.0)


def test_gradients_are_separate():
    """The policy's loss leaves the critic alone, and the critic's the policy."""
    model = make_model()
    td = model.env.reset(batch_size=8)
    out = model.calculate_loss(td, td, model.policy(td, model.env))
    for loss, moved, resting in (
        (out["reinforce_loss"], model.policy, model.baseline),
        (out["bl_loss"], model.baseline, model.policy),
    ):
        model.zero_grad()
        loss.backward(retain_graph=True)
        assert any(p.grad is not None and p.grad.any() for p in moved.parameters())
        assert all(p.grad is None for p in resting.parameters())


def test_groups_of_the_optimizer():
    """Own settings for actor and critic; what neither says comes from `optimizer_kwargs`."""
    model = make_model(
        actor_optimizer_kwargs={"lr": 0.1},
        critic_optimizer_kwargs={"lr": 0.2, "weight_decay": 0.3},
        optimizer_kwargs={"lr": 1.0, "weight_decay": 0.4},
    )
    actor, critic = model.configure_optimizers().param_groups
    assert (actor["lr"], actor["weight_decay"]) == (0.1, 0.4)
    assert (critic["lr"], critic["weight_decay"]) == (0.2, 0.3)
    assert {id(p) for p in actor["params"]} == {id(p) for p in model.policy.parameters()}
    assert {id(p) for p in critic["params"]} == {id(p) for p in model.baseline.parameters()}


def test_default_groups():
    """1e-4 for both; the critic takes over what the actor has."""
    assert [g["lr"] for g in make_model().configure_optimizers().param_groups] == [1e-4, 1e-4]
    groups = make_model(actor_optimizer_kwargs={"lr": 0.5}).configure_optimizers().param_groups
    assert [group["lr"] for group in groups] == [0.5, 0.5]


def test_scheduler_moves_both_groups(tmp_path):
    model = make_model(
        critic_optimizer_kwargs={"lr": 1e-3},
        lr_scheduler="MultiStepLR",
        lr_scheduler_kwargs={"milestones": [1], "gamma": 0.1},
    )
    trainer = fit(model, tmp_path, max_epochs=2)
    assert [g["lr"] for g in trainer.optimizers[0].param_groups] == pytest.approx([1e-5, 1e-4])


def test_critic_that_does_not_learn_stays(tmp_path):
    """A rate of zero for the critic, and only for it: all but the bias that it starts with."""
    model = make_model(critic_optimizer_kwargs={"lr": 0.0})
    before = [
        {k: v.clone() for k, v in m.named_parameters()} for m in (model.policy, model.baseline)
    ]
    fit(model, tmp_path)
    for name, weight in model.baseline.named_parameters():
        assert torch.equal(weight, before[1][name]) == (name != "critic.value_head.2.bias"), name
    assert any(not torch.equal(w, before[0][n]) for n, w in model.policy.named_parameters())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"baseline": "rollout"}, ConfigError, "no baseline for A2C"),
        ({"actor_optimizer_kwargs": {"lr": -1.0}}, ConfigError, "got .*-1"),
        ({"critic_optimizer_kwargs": {"rate": 1.0}}, ConfigError, "rate"),
        ({"optimizer": "Adamm"}, UnknownNameError, "Adam"),
        ({"critic_kwargs": {"hiden_dim": 4}}, UnknownArgumentError, "did you mean 'hidden_dim'"),
    ],
)
def test_bad_arguments(options, error, words):
    with pytest.raises(error, match=words):
        make_model(**options)


def test_critic_and_its_arguments_exclude_each_other():
    policy = AttentionModelPolicy(**TINY)
    critic = create_critic_from_actor(policy)
    with pytest.raises(ConfigError, match="critic or critic_kwargs"):
        make_model(policy=policy, critic=critic, critic_kwargs={"hidden_dim": 4})
    assert make_model(policy=policy, critic=critic).baseline.critic is critic


def test_critic_is_built_like_the_policy():
    """Its encoder is a copy with weights of its own; arguments reach it."""
    model = make_model(critic_kwargs={"hidden_dim": 7})
    critic = model.baseline.critic
    assert critic.value_head[0].weight.shape == (7, 16)
    ours, theirs = critic.encoder.state_dict(), model.policy.encoder.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(ours[key].data_ptr() != theirs[key].data_ptr() for key in ours)
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_critic_from_another_part():
    """`backbone` names the network to copy; a policy without it raises."""
    policy = AttentionModelPolicy(**TINY)
    policy.body = policy.encoder
    assert type(create_critic_from_actor(policy, backbone="body").encoder) is type(policy.encoder)
    with pytest.raises(UnsupportedError, match="'legs'"):
        create_critic_from_actor(policy, backbone="legs")


def test_customized_critic():
    """Encoder and head in a language of their own: V = head(2 x, hidden) = 2 x + hidden."""

    class Head(nn.Module):
        def forward(self, embedding, hidden):
            return embedding + hidden

    class Double(nn.Module):
        def forward(self, x):
            return 2 * x

    critic = CriticNetwork(Double(), Head(), customized=True)
    assert critic(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])).tolist() == [12.0, 24.0]
    with pytest.raises(ConfigError, match="value_head"):
        CriticNetwork(Double(), customized=True)


def test_checkpoint_is_loaded_without_code(tmp_path):
    model = make_model(critic_kwargs={"hidden_dim": 7}, critic_optimizer_kwargs={"lr": 0.5})
    trainer = fit(model, tmp_path)
    trainer.save_checkpoint(tmp_path / "a2c.ckpt")
    loaded = A2C.load_from_checkpoint(tmp_path / "a2c.ckpt")
    assert loaded.critic_optimizer_kwargs == {"lr": 0.5}
    for key, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], value), key
    anew = A2C.load_from_checkpoint(tmp_path / "a2c.ckpt", load_baseline=False)
    weights = zip(anew.baseline.critic.encoder.parameters(), anew.policy.encoder.parameters(),
                  strict=True)  # fmt: skip
    assert all(torch.equal(ours, theirs) for ours, theirs in weights)


def test_every_epoch_has_its_own_instances(tmp_path):
    from lightning.pytorch.callbacks import Callback

    class Seen(Callback):
        def __init__(self) -> None:
            self.batches: list[float] = []

        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            self.batches.append(float(batch["locs"].sum()))

    seen = Seen()
    fit(make_model(), tmp_path, max_epochs=3, callbacks=[seen])
    assert len(set(seen.batches)) == 6


@pytest.mark.learning
def test_training_improves(tmp_path, require):
    """Ten nodes, 60 steps: tours shrink, and the critic knows their length."""
    torch.manual_seed(0)
    env = TSPEnv(generator_params={"num_loc": 10})
    policy = AttentionModelPolicy(embed_dim=32, num_heads=4, num_encoder_layers=2,
                                  feedforward_hidden=64)  # fmt: skip
    model = A2C(
        env, policy, actor_optimizer_kwargs={"lr": 1e-3}, critic_optimizer_kwargs={"lr": 3e-3},
        batch_size=128, train_data_size=128 * 60, val_data_size=8, test_data_size=8, seed=0,
    )  # fmt: skip
    ratio = cost_ratio(model, lambda: fit(model, tmp_path, max_epochs=1))
    require("cost after / before", ratio, below=0.8)
    # The critic learns the sampled reward, by statistics of the batch at hand.
    td = env.reset(env.generator(256, rng=derive_generator("held out")))
    with torch.no_grad():
        value = float(model.baseline.critic.train()(td).mean())
    require("error of the critic", abs(value + expected_cost(model)), below=0.4)
