"""PPO: losses by hand, the inner loop, what Lightning leaves to the module, and learning."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import AMPPO, PPO, AttentionModelPolicy, RL4COLitModule
from rl4co.models.rl.critic import CriticNetwork
from rl4co.models.rl.inner_loop import count_mini_batches, split_evenly
from rl4co.models.rl.losses import (
    clipped_surrogate_loss,
    generalized_advantages,
    huber_critic_loss,
    probability_ratio,
    standardize,
)
from rl4co.models.rl.ppo import policy_shift
from rl4co.training import LearningCurve
from tests.learning import cost_ratio
from tests.trainers import fit, make_trainer

PROGRAM = Path(__file__).with_name("ppo_distributed.py")
#: Instance normalisation: an instance's probabilities do not depend on its mini-batch.
TINY = {
    "embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16, "num_encoder_layers": 1,
    "normalization": "instance",
}  # fmt: skip
SIZES = {"batch_size": 8, "train_data_size": 32, "val_data_size": 16, "test_data_size": 8}


def make_model(cls: Any = PPO, env: Any = None, **options: Any) -> Any:
    """A tiny model, always with the same weights."""
    torch.manual_seed(0)
    env = env or TSPEnv(generator_params={"num_loc": 6})
    policy = options.pop("policy", None) or AttentionModelPolicy(env_name=env.name, **TINY)
    defaults = {**SIZES, "seed": 5, "optimizer_kwargs": {"lr": 1e-2}}
    return cls(env, policy, **{**defaults, **options})


class Updates(Callback):
    """Keeps the norm of the gradient and the weights that each update starts from."""

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.weights: list[torch.Tensor] = []

    def on_before_optimizer_step(self, trainer, model, optimizer):
        gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        self.norms.append(float(torch.cat(gradients).norm()))
        self.weights.append(nn.utils.parameters_to_vector(model.parameters()).clone())


# ---------------------------------------------------------------- pure functions


def test_clipped_surrogate_loss_by_hand():
    """With clip range 0.2 and advantages (1, 1, -1, -1):

    ratios 1.5 → min(1.5, 1.2) = 1.2; 0.5 → min(0.5, 0.8) = 0.5; 1.5 → min(-1.5, -1.2) = -1.5;
    0.5 → min(-0.5, -0.8) = -0.8. Sum -0.6, loss 0.6 / 4 = 0.15. Clipped ones (the first and the
    last) have no gradient; the others have -A / 4.
    """
    ratio = torch.tensor([1.5, 0.5, 1.5, 0.5], requires_grad=True)
    loss = clipped_surrogate_loss(ratio, torch.tensor([1.0, 1.0, -1.0, -1.0]), 0.2)
    assert loss.item() == pytest.approx(0.15)
    loss.backward()
    assert ratio.grad.tolist() == [0.0, -0.25, 0.25, 0.0]


def test_probability_ratio_does_not_overflow():
    """exp(log 0.3 - log 0.6) = 0.5; differences beyond 20 count as 20, without gradient."""
    old = torch.tensor([0.6, 1.0]).log() - torch.tensor([0.0, 500.0])
    new = torch.tensor([0.3, 1.0]).log().requires_grad_()
    ratio = probability_ratio(new, old)
    assert ratio.tolist() == pytest.approx([0.5, math.exp(20)])
    ratio.sum().backward()
    assert new.grad.tolist() == pytest.approx([0.5, 0.0])
    with pytest.raises(ConfigError, match="same shape"):
        probability_ratio(new, old.unsqueeze(-1))


def test_advantage_is_a_constant():
    advantage = torch.ones(2, requires_grad=True)
    loss = clipped_surrogate_loss(torch.ones(2, requires_grad=True), advantage, 0.2)
    loss.backward()
    assert advantage.grad is None


def test_shapes_that_would_broadcast_raise():
    with pytest.raises(ConfigError, match="same shape"):
        clipped_surrogate_loss(torch.ones(3), torch.ones(3, 1), 0.2)
    with pytest.raises(ConfigError, match="same shape"):
        huber_critic_loss(torch.ones(3), torch.ones(3, 1))


def test_huber_loss_by_hand():
    """Differences 0.5 and 3: 0.5² / 2 = 0.125 and 3 - 0.5 = 2.5; mean 1.3125."""
    value = torch.tensor([0.5, 3.0], requires_grad=True)
    loss = huber_critic_loss(value, torch.zeros(2, requires_grad=True))
    assert loss.item() == pytest.approx(1.3125)


def test_standardised():
    """(1, 3): mean 2, deviation 1. A single value, or equal ones, give 0 instead of NaN."""
    assert standardize(torch.tensor([1.0, 3.0])).tolist() == pytest.approx([-1.0, 1.0])
    assert standardize(torch.tensor([7.0])).tolist() == [0.0]
    assert standardize(torch.tensor([7.0, 7.0])).tolist() == [0.0, 0.0]


def test_generalized_advantages_by_hand():
    """Three steps with rewards (1, 2, 3), values (4, 5, 6), gamma 0.5, lambda 0.5.

    deltas: 3 - 6 = -3; 2 + 0.5 · 6 - 5 = 0; 1 + 0.5 · 5 - 4 = -0.5.
    A_2 = -3; A_1 = 0 + 0.25 · (-3) = -0.75; A_0 = -0.5 + 0.25 · (-0.75) = -0.6875.
    The second episode ends after two steps: A_1 = 2 - 5 = -3, A_0 = -0.5 - 0.75 = -1.25.
    """
    reward = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 99.0]])
    value = torch.tensor([[4.0, 4.0], [5.0, 5.0], [6.0, 99.0]])
    done = torch.tensor([[False, False], [False, False], [False, True]])
    out = generalized_advantages(reward, value, done, gamma=0.5, gae_lambda=0.5)
    expected = torch.tensor([[-0.6875, -1.25], [-0.75, -3.0], [-3.0, 0.0]])
    torch.testing.assert_close(out, expected)


def test_generalized_advantages_at_the_ends():
    """lambda = 1: rewards to come minus value. gamma = 0: the reward minus value."""
    reward, value = torch.rand(4, 3), torch.rand(4, 3)
    done = torch.zeros(4, 3, dtype=torch.bool)
    whole = generalized_advantages(reward, value, done, 1.0, 1.0)
    torch.testing.assert_close(whole, reward.flip(0).cumsum(0).flip(0) - value)
    own = generalized_advantages(reward, value, done, 0.0, 0.95)
    torch.testing.assert_close(own, reward - value)


def test_policy_shift_by_hand():
    """Ratios 1, 1.1, 2: one of three outside 0.2; KL (0 + 0.1 - log 1.1 + 1 - log 2) / 3."""
    out = policy_shift(torch.tensor([1.0, 1.1, 2.0]), 0.2)
    assert float(out["clip_fraction"]) == pytest.approx(1 / 3)
    assert float(out["approx_kl"]) == pytest.approx((1.1 - 0.0953102 - 0.6931472) / 3, abs=1e-6)


# ---------------------------------------------------------------- mini-batches


@pytest.mark.parametrize(
    ("rows", "size", "sizes"),
    [
        (8, 0.25, [2, 2, 2, 2]),
        (10, 0.25, [3, 3, 2, 2]),
        (30, 0.1, [3] * 10),
        (3, 0.25, [1, 1, 1]),
        (10, 4, [4, 3, 3]),
        (8, 8, [8]),
        (8, 512, [8]),
        (8, 1.0, [8]),
        (8, 1, [1] * 8),
        (1, 0.25, [1]),
    ],
)
def test_sizes_of_mini_batches(rows, size, sizes):
    """Never larger than asked for, equal but for one, and together every row once."""
    parts = split_evenly(torch.randperm(rows), count_mini_batches(rows, size))
    assert [len(part) for part in parts] == sizes
    assert sorted(torch.cat(parts).tolist()) == list(range(rows))


def test_fewer_rows_than_mini_batches():
    """Another process has more rows: all make the same number of updates."""
    parts = split_evenly(torch.tensor([4, 7]), 5)
    assert [part.tolist() for part in parts] == [[4], [7], [4], [7], [4]]


@pytest.mark.parametrize(("size", "epochs", "updates"), [(0.25, 2, 8), (3, 1, 3), (1.0, 3, 3)])
def test_number_of_updates(size, epochs, updates, tmp_path):
    """Per batch of 8; `global_step` counts them."""
    seen = Updates()
    model = make_model(mini_batch_size=size, ppo_epochs=epochs)
    trainer = fit(model, tmp_path, callbacks=[seen], limit_train_batches=2)
    assert len(seen.norms) == trainer.global_step == 2 * updates


def test_order_of_rows(tmp_path):
    """Another one in each inner epoch and batch, the same one in a repeated run."""

    class Orders(PPO):
        def split_rows(self, *args):
            parts = super().split_rows(*args)
            self.seen.append(torch.cat(parts).tolist())
            return parts

    runs = []
    for _ in range(2):
        model = make_model(Orders)
        model.seen = []
        fit(model, tmp_path, limit_train_batches=2, max_epochs=2)
        runs.append(model.seen)
    assert runs[0] == runs[1]
    assert len({tuple(order) for order in runs[0]}) == 8


# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("entropy_lambda", [0.0, 0.3])
@pytest.mark.parametrize("problem", [TSPEnv, CVRPEnv])
def test_ratio_is_one_before_the_first_update(problem, entropy_lambda):
    """The replay gives the probabilities that the actions were chosen with."""
    model = make_model(env=problem(generator_params={"num_loc": 6}), entropy_lambda=entropy_lambda)
    solutions = model.solve(model.env.generate(16), 0)
    for rows in (torch.arange(16), torch.tensor([3, 1, 8])):
        out = model.calculate_loss(solutions.rows(rows))
        assert float(out["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
        assert float(out["clip_fraction"]) == 0.0
        advantage = solutions.reward[rows] - model.critic(solutions.td[rows])
        assert float(out["surrogate_loss"]) == pytest.approx(-float(advantage.mean()), abs=1e-5)


@pytest.mark.parametrize("normalize", [False, True])
def test_loss_is_the_sum_of_its_parts(normalize):
    """Recomputed from a policy that has moved on since it acted."""
    options = {"vf_lambda": 0.7, "entropy_lambda": 0.3, "clip_range": 0.1}
    model = make_model(normalize_adv=normalize, **options)
    solutions = model.solve(model.env.generate(16), 0)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    out = model.calculate_loss(solutions)
    new = model.policy.evaluate(solutions.td, solutions.actions, model.env)
    value = model.critic(solutions.td)
    advantage = solutions.reward - value
    if normalize:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    gains = []
    for b in range(16):
        r = float((new["log_likelihood"][b] - solutions.log_likelihood[b]).exp())
        a = float(advantage[b])
        gains.append(min(r * a, min(max(r, 0.9), 1.1) * a))
    huber = nn.functional.huber_loss(value, solutions.reward)
    expected = -sum(gains) / 16 + 0.7 * huber - 0.3 * new["entropy"].mean()
    assert float(out["loss"]) == pytest.approx(float(expected), abs=1e-4)
    assert float(out["clip_fraction"]) > 0.0


def test_gradients_of_actor_and_critic_are_separate():
    """The value enters the policy's loss as a constant, and the reward is no function of either."""
    model = make_model()
    solutions = model.solve(model.env.generate(8), 0)
    assert not solutions.reward.requires_grad
    assert not solutions.log_likelihood.requires_grad
    out = model.calculate_loss(solutions)
    for loss, moved, resting in (
        (out["surrogate_loss"], model.policy, model.critic),
        (out["value_loss"], model.critic, model.policy),
    ):
        model.zero_grad()
        loss.backward(retain_graph=True)
        assert any(p.grad is not None and p.grad.any() for p in moved.parameters())
        assert all(p.grad is None for p in resting.parameters())


def test_solutions_beyond_the_clip_range_teach_nothing():
    """All ratios pushed out in the direction of their advantages: the policy has no gradient."""
    model = make_model(clip_range=0.2)
    solutions = model.solve(model.env.generate(8), 0)
    with torch.no_grad():
        advantage = solutions.reward - model.critic(solutions.td)
    shifted = solutions._replace(log_likelihood=solutions.log_likelihood - advantage.sign())
    out = model.calculate_loss(shifted)
    assert float(out["clip_fraction"]) == 1.0
    out["surrogate_loss"].backward()
    assert all(p.grad is None or not p.grad.any() for p in model.policy.parameters())


def test_entropy_estimate_agrees_with_the_entropy():
    """Without a bonus the logged entropy is -log pi(a): the same on average."""
    model, exact = make_model(), make_model(entropy_lambda=0.1)
    batch = model.env.generate(512)
    estimate = model.calculate_loss(model.solve(batch, 0))["entropy"].mean()
    entropy = exact.calculate_loss(exact.solve(batch, 0))["entropy"].mean()
    assert float(estimate) == pytest.approx(float(entropy), rel=0.03)


def test_several_solutions_per_instance_raise():
    policy = AttentionModelPolicy(**TINY, train_decode_type="multistart_sampling")
    model = make_model(policy=policy)
    with pytest.raises(ConfigError, match="one solution per instance"):
        model.solve(model.env.generate(4), 0)


# ---------------------------------------------------------------- with the trainer


def test_inner_epochs_move_all_weights(tmp_path):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    fit(model, tmp_path)
    moved = [name for name, w in model.named_parameters() if not torch.equal(w, before[name])]
    assert len(moved) > 0.9 * len(before)
    assert any(name.startswith("critic.") for name in moved)


def test_later_updates_see_moved_weights(tmp_path):
    """The ratio is 1 in the first update of a batch, and not in those after it."""
    shifts: list[float] = []

    class Watched(PPO):
        def calculate_loss(self, solutions):
            out = super().calculate_loss(solutions)
            shifts.append(float(out["approx_kl"].detach()))
            return out

    fit(make_model(Watched, max_grad_norm=None), tmp_path, limit_train_batches=2)
    assert [abs(shifts[i]) < 1e-6 for i in (0, 8)] == [True, True]
    assert all(shift > 1e-6 for i, shift in enumerate(shifts) if i % 8)


@pytest.mark.parametrize("max_grad_norm", [1e-3, None])
def test_gradients_are_clipped(max_grad_norm, tmp_path):
    """One step of plain SGD with rate 1 goes as far as the clipped gradient is long."""
    seen = Updates()
    model = make_model(
        max_grad_norm=max_grad_norm, ppo_epochs=1, mini_batch_size=1.0,
        optimizer="SGD", optimizer_kwargs={"lr": 1.0},
    )  # fmt: skip
    fit(model, tmp_path, limit_train_batches=1, callbacks=[seen])
    far = float((nn.utils.parameters_to_vector(model.parameters()) - seen.weights[0]).norm())
    assert seen.norms[0] > 1e-2
    assert far == pytest.approx(seen.norms[0] if max_grad_norm is None else 1e-3, rel=1e-3)


def test_clipping_of_the_trainer_is_left_to_the_model(tmp_path):
    """The trainer's default gives way; another value, which would be ignored, is reported."""
    trainer = fit(make_model(), tmp_path, limit_train_batches=1)
    assert trainer.gradient_clip_val == 1.0
    with pytest.warns(UserWarning, match="gradient_clip_val=3.0 .* max_grad_norm"):
        fit(make_model(), tmp_path, limit_train_batches=1, gradient_clip_val=3.0)


def test_every_epoch_has_its_own_instances(tmp_path):
    class Seen(Callback):
        def __init__(self) -> None:
            self.batches: list[float] = []

        def on_train_batch_start(self, trainer, model, batch, batch_idx):
            self.batches.append(float(batch["locs"].sum()))

    seen = Seen()
    fit(make_model(), tmp_path, max_epochs=3, callbacks=[seen])
    assert len(seen.batches) == len(set(seen.batches)) == 12


def test_metrics(tmp_path):
    trainer = fit(make_model(), tmp_path)
    names = ("reward", "loss", "surrogate_loss", "value_loss", "entropy", "clip_fraction")
    assert {f"train/{name}" for name in names} | {"val/reward"} <= set(trainer.callback_metrics)


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"lr_scheduler": "MultiStepLR", "lr_scheduler_kwargs": {"milestones": [1, 2]}},
         [1e-2, 1e-3, 1e-4]),
        ({"lr_scheduler": "StepLR", "lr_scheduler_kwargs": {"step_size": 4},
          "lr_scheduler_interval": "step"}, [1e-2, 1e-3, 1e-4]),
        # Nothing improves by 10, so the rate drops after every epoch but the first.
        ({"lr_scheduler": "ReduceLROnPlateau",
          "lr_scheduler_kwargs": {"mode": "max", "patience": 0, "threshold": 10.0,
                                  "threshold_mode": "abs"}}, [1e-2, 1e-2, 1e-3]),
    ],
    ids=["epoch", "step", "plateau"],
)  # fmt: skip
def test_schedulers(settings, rates, tmp_path):
    """By epochs, by batches (four per epoch, not by updates), and by a metric."""

    class Rates(Callback):
        def __init__(self) -> None:
            self.seen: list[float] = []

        def on_train_epoch_start(self, trainer, model):
            self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    seen = Rates()
    fit(make_model(**settings), tmp_path, max_epochs=3, callbacks=[seen])
    assert seen.seen == pytest.approx(rates)


def test_scheduler_without_its_metric(tmp_path):
    model = make_model(lr_scheduler="ReduceLROnPlateau", lr_scheduler_monitor="val/rewards")
    with pytest.raises(ConfigError, match=r"'val/rewards'.*val/reward"):
        fit(model, tmp_path)


def test_mixed_precision(tmp_path):
    """Weights learn, in their own precision, and stay finite."""
    model = make_model(entropy_lambda=0.01)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    fit(model, tmp_path, precision="bf16-mixed")
    for name, weight in model.named_parameters():
        assert weight.dtype == torch.float32
        assert bool(weight.isfinite().all()), name
    changed = [not torch.equal(w, before[n]) for n, w in model.named_parameters()]
    assert sum(changed) > 0.9 * len(changed)


def test_scaled_gradients_are_clipped_unscaled(tmp_path):
    """Where losses are scaled (16 bits), the norm is that of the gradient, not of its multiple."""
    from lightning.pytorch.plugins import MixedPrecision

    seen = Updates()
    settings = {"ppo_epochs": 1, "mini_batch_size": 1.0, "optimizer": "SGD"}
    model = make_model(max_grad_norm=1e-3, optimizer_kwargs={"lr": 1.0}, **settings)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    plugin = MixedPrecision("16-mixed", "cpu", scaler)
    plugin.precision = "bf16-mixed"  # the scaler with a type that this processor computes with
    trainer = make_trainer(
        tmp_path, precision=None, plugins=[plugin], callbacks=[seen], limit_train_batches=1
    )
    trainer.fit(model)
    far = float((nn.utils.parameters_to_vector(model.parameters()) - seen.weights[0]).norm())
    assert far == pytest.approx(1e-3, rel=1e-2)


# ---------------------------------------------------------------- resuming


PLATEAU = {
    "lr_scheduler": "ReduceLROnPlateau",
    "lr_scheduler_kwargs": {"mode": "max", "patience": 0, "threshold": 10.0,
                            "threshold_mode": "abs"},
}  # fmt: skip
STEPS = {"lr_scheduler": "MultiStepLR", "lr_scheduler_kwargs": {"milestones": [1, 2]}}
# 4 batches of 4 updates make 16 updates per epoch.
RESUMES = {
    "after a batch": ({"every_n_train_steps": 20}, STEPS),
    "on a plateau, after a batch": ({"every_n_train_steps": 16}, PLATEAU),
    "on a plateau, at the end of an epoch": ({}, PLATEAU),
    "on a plateau, after validation": ({"save_on_train_epoch_end": False}, PLATEAU),
}


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.parametrize("case", RESUMES)
def test_resuming_changes_nothing(case, tmp_path):
    """From every checkpoint the rest of the run happens again: weights, metrics, rates."""
    saving, settings = RESUMES[case]

    def run(ckpt: Path | None) -> Any:
        model = make_model(mini_batch_size=0.5, **settings)
        callbacks: list[Callback] = [LearningCurve()]
        if ckpt is None:
            options = {"filename": "{step}", "save_top_k": -1, **saving}
            callbacks.append(ModelCheckpoint(dirpath=tmp_path, **options))
        trainer = make_trainer(tmp_path, callbacks=callbacks, max_epochs=3)
        trainer.fit(model, ckpt_path=ckpt)
        history = [{k: v for k, v in e.items() if k != "seconds"} for e in callbacks[0].history]
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        return model.state_dict(), history, rate, trainer.global_step

    whole = run(None)
    files = sorted(tmp_path.glob("*.ckpt"))
    assert len(files) >= 2
    for file in files:
        weights, *rest = run(file)
        assert rest == list(whole[1:]), file
        assert all(torch.equal(value, whole[0][key]) for key, value in weights.items()), file


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip_range": 0.0}, "positive clip_range"),
        ({"clip_range": float("nan")}, "positive clip_range"),
        ({"ppo_epochs": 0}, "ppo_epochs"),
        ({"ppo_epochs": 1.5}, "ppo_epochs"),
        ({"mini_batch_size": 1.5}, "mini_batch_size"),
        ({"mini_batch_size": 0.0}, "mini_batch_size"),
        ({"mini_batch_size": 0}, "mini_batch_size"),
        ({"mini_batch_size": -4}, "mini_batch_size"),
        ({"mini_batch_size": True}, "mini_batch_size"),
        ({"vf_lambda": -1.0}, "vf_lambda"),
        ({"entropy_lambda": -1.0}, "entropy_lambda"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ConfigError, match=words):
        make_model(**options)


def test_defaults_of_the_published_interface():
    model = PPO(TSPEnv(), AttentionModelPolicy(**TINY))
    assert (model.clip_range, model.ppo_epochs, model.mini_batch_size) == (0.2, 2, 0.25)
    assert (model.vf_lambda, model.entropy_lambda, model.max_grad_norm) == (0.5, 0.0, 0.5)
    assert model.normalize_adv is False


def test_amppo_has_the_papers_settings():
    """Mini-batches of 512, entropy 0.01; what the user says wins."""
    model = AMPPO(TSPEnv(), policy_kwargs=TINY)
    assert (model.clip_range, model.ppo_epochs, model.mini_batch_size) == (0.2, 2, 512)
    assert (model.entropy_lambda, model.normalize_adv) == (0.01, False)
    assert model.critic.value_head[0].in_features == 16
    mine = AMPPO(
        CVRPEnv(), policy_kwargs=TINY, mini_batch_size=0.5, critic_kwargs={"hidden_dim": 3}
    )
    assert (mine.mini_batch_size, mine.policy.env_name) == (0.5, "cvrp")
    assert mine.critic.value_head[0].out_features == 3


def test_checkpoint_is_loaded_without_code(tmp_path):
    env = TSPEnv(generator_params={"num_loc": 6})
    model = AMPPO(env, policy_kwargs=TINY, clip_range=0.3, **SIZES)
    trainer = fit(model, tmp_path)
    trainer.save_checkpoint(tmp_path / "ppo.ckpt")
    loaded = RL4COLitModule.load_from_checkpoint(tmp_path / "ppo.ckpt")
    assert type(loaded) is AMPPO
    assert loaded.clip_range == 0.3
    assert all(torch.equal(loaded.state_dict()[k], v) for k, v in model.state_dict().items())


def test_values_start_at_the_mean_reward(tmp_path, monkeypatch):
    """Before the first update of a trainer, and never again."""
    seen: list[tuple[float, float]] = []
    center = CriticNetwork.center_

    def watched(critic, td, reward):
        center(critic, td, reward)
        with torch.no_grad():
            seen.append((float(critic(td).mean()), float(reward.mean())))

    monkeypatch.setattr(CriticNetwork, "center_", watched)
    fit(make_model(), tmp_path, max_epochs=2, limit_train_batches=2)
    ((value, reward),) = seen
    assert value == pytest.approx(reward, abs=1e-4)


# ---------------------------------------------------------------- learning


@pytest.mark.learning
@pytest.mark.parametrize(
    ("problem", "num_batches", "options", "precision", "bound"),
    [
        (TSPEnv, 20, {"normalize_adv": True}, "bf16-mixed", 0.8),
        (CVRPEnv, 30, {"normalize_adv": True}, "32-true", 0.93),
    ],
    ids=["tsp-bf16", "cvrp"],
)
def test_training_improves(problem, num_batches, options, precision, bound, tmp_path, require):
    """Ten nodes, 8 updates per batch."""
    torch.manual_seed(0)
    env = problem(generator_params={"num_loc": 10})
    policy = {"embed_dim": 32, "num_heads": 4, "num_encoder_layers": 2, "feedforward_hidden": 64}
    model = AMPPO(
        env, policy_kwargs={**policy, "normalization": "instance"}, mini_batch_size=0.25,
        batch_size=64, train_data_size=64 * num_batches, val_data_size=8, test_data_size=8, seed=0,
        optimizer_kwargs={"lr": 1e-3}, **options,
    )  # fmt: skip
    ratio = cost_ratio(model, lambda: fit(model, tmp_path, precision=precision))
    require("cost after / before", ratio, below=bound)


# ---------------------------------------------------------------- several processes


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Case → what each of two processes saw, from one real run of both."""
    folder = tmp_path_factory.mktemp("ddp")
    clean = {key: value for key, value in os.environ.items() if key not in ("LOCAL_RANK", "RANK")}
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**clean, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    cases = ("whole", "uneven", "stepwise", "stepwise-resumed")
    return {
        case: [torch.load(folder / f"{case}-{rank}.pt", weights_only=True) for rank in (0, 1)]
        for case in cases
    }


@pytest.mark.slow
def test_gradients_are_those_of_the_joint_batch(processes):
    """Each update of two processes is that of one process with both mini-batches."""
    spec = importlib.util.spec_from_file_location("ppo_distributed", PROGRAM)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    model = program.make_model("whole")
    first, second = processes["whole"]
    locs = torch.cat([first["batch"], second["batch"]])
    assert len(locs.flatten(1).unique(dim=0)) == 12
    solutions = model.solve(model.env.generator(12).set("locs", locs), 0)
    model.critic.center_(solutions.td, solutions.reward)
    model.calculate_loss(solutions)["loss"].backward()
    for name, weight in model.named_parameters():
        if weight.grad is not None:
            for process in (first, second):
                torch.testing.assert_close(
                    process["gradients"][name], weight.grad, rtol=1e-4, atol=1e-5, msg=name
                )


@pytest.mark.slow
@pytest.mark.parametrize("case", ["whole", "uneven", "stepwise"])
def test_processes_stay_together(case, processes):
    """The same number of updates and the same weights, also where batches are uneven."""
    first, second = processes[case]
    assert first["steps"] == second["steps"]
    for name, value in first["weights"].items():
        torch.testing.assert_close(second["weights"][name], value, rtol=0, atol=1e-6, msg=name)


@pytest.mark.slow
def test_processes_resume_between_updates(processes):
    """Each process gets its own waiting transitions back."""
    for whole, resumed in zip(processes["stepwise"], processes["stepwise-resumed"], strict=True):
        for name, value in whole["weights"].items():
            assert torch.equal(resumed["weights"][name], value), name
