"""StepwisePPO: transitions against the environment, losses by hand, resuming, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning.pytorch.callbacks import Callback

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.ops import get_distance
from rl4co.envs import DenseRewardTSPEnv, FJSPEnv, JSSPEnv, TSPEnv
from rl4co.models import (
    AttentionModelPolicy,
    L2DPolicy,
    L2DPPOModel,
    PointerNetworkPolicy,
    StepwisePPO,
)
from rl4co.models.rl.transitions import INSTANCE, TransitionBuffer
from rl4co.training import LearningCurve
from tests.learning import choose_at_random_, cost_ratio
from tests.trainers import fit
from tests.unit.models.stepwise import TinyStepwisePolicy

NODES = 5
SIZES = {"batch_size": 4, "train_data_size": 16, "val_data_size": 8, "test_data_size": 8}


def make_model(cls: Any = StepwisePPO, **options: Any) -> Any:
    torch.manual_seed(0)
    env = options.pop("env", None) or DenseRewardTSPEnv(generator_params={"num_loc": NODES})
    policy = options.pop("policy", None) or TinyStepwisePolicy()
    defaults = {**SIZES, "seed": 5, "mini_batch_size": 8, "optimizer_kwargs": {"lr": 1e-2}}
    return cls(env, policy, **{**defaults, **options})


def transitions(model: Any) -> Any:
    return model.buffer.get(torch.arange(len(model.buffer)), model.device)


# ---------------------------------------------------------------- what is collected


def test_transitions_are_the_steps_of_the_environment():
    """Each one: the state before the step, an action that it allows, and what came of it."""
    model = make_model(gamma=0.0)
    batch = model.env.generate(3)
    total = model.collect(batch, 0)
    td = transitions(model)
    assert td.batch_size == (3 * NODES,)
    steps = td.view(NODES, 3)  # [T, B]
    actions = steps["action"].t()  # [B, T]
    torch.testing.assert_close(total, model.env.get_reward(model.env.reset(batch), actions))
    state = model.env.reset(batch)
    for t in range(NODES):
        for key in ("locs", "action_mask", "current_node", "first_node", "i", "done"):
            assert torch.equal(steps[key][t], state[key]), key
        log_probs, value = model.policy.evaluate_state(state)
        chosen = log_probs.gather(-1, steps["action"][t].unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(steps["logprobs"][t], chosen)
        # gamma = 0: the target is the step's own reward, minus the length that it adds.
        here = state["locs"][torch.arange(3), state["current_node"]]
        there = state["locs"][torch.arange(3), steps["action"][t]]
        reward = -get_distance(here, there) * (t > 0)
        if t == NODES - 1:
            first = state["locs"][torch.arange(3), state["first_node"]]
            reward = reward - get_distance(there, first)
        torch.testing.assert_close(steps["target"][t], reward)
        torch.testing.assert_close(steps["advantage"][t], reward - value)
        state = model.env.step(state.set("action", steps["action"][t]))["next"]


def test_targets_of_whole_episodes():
    """lambda = 1, gamma = 1: the first step's target is the reward of the solution."""
    model = make_model(gamma=1.0, gae_lambda=1.0)
    total = model.collect(model.env.generate(6), 0)
    torch.testing.assert_close(transitions(model)["target"][:6], total)


def test_values_are_asked_for_if_they_do_not_come_with_actions():
    """The same advantages, whether `act` gives values or not."""
    batch = DenseRewardTSPEnv(generator_params={"num_loc": NODES}).generate(4)
    found = []
    for with_value in (True, False):
        torch.manual_seed(0)
        model = make_model(policy=TinyStepwisePolicy(with_value=with_value))
        model.collect(batch, 0)
        found.append(transitions(model)["advantage"])
    torch.testing.assert_close(found[0], found[1])


class Lottery(DenseRewardTSPEnv):
    """A tour may end early: at node 0, in steps after the first."""

    def _transition(self, state, action):
        changes = super()._transition(state, action)
        over = (action == 0).unsqueeze(-1) & (state["i"] > 0)
        return {**changes, "done": state["done"] | changes["done"] | over}

    def step_bounds(self, state):
        return 2, super().step_bounds(state)[1]

    def _violations(self, state, actions):
        return {}


def test_finished_instances_add_no_loss():
    """Steps in which an instance waits for others are not learned from."""
    env = Lottery(generator_params={"num_loc": NODES})
    model = make_model(env=env)
    model.collect(env.generate(32), 0)
    td = transitions(model)
    assert not bool(td["done"].any())
    lengths = torch.bincount(model.buffer._storage[:][INSTANCE], minlength=32)
    assert 2 <= int(lengths.min()) < int(lengths.max()) <= NODES


def test_reward_scale():
    """Rewards are divided before advantages are taken; running statistics are kept."""
    plain, scaled = make_model(gamma=0.0), make_model(gamma=0.0, reward_scale=4)
    batch = plain.env.generate(4)
    for model in (plain, scaled):
        model.collect(batch, 0)
    expected = transitions(plain)["target"] / 4
    torch.testing.assert_close(transitions(scaled)["target"], expected)
    running = make_model(gamma=0.0, reward_scale="scale")
    running.collect(batch, 0)
    assert int(running.scaler.count) == 4 * NODES
    deviation = transitions(plain)["target"].std()
    torch.testing.assert_close(
        transitions(running)["target"], transitions(plain)["target"] / deviation
    )


@pytest.mark.parametrize("torchrl_mode", [False, True])
def test_an_environment_without_dense_rewards_raises(torchrl_mode):
    env = TSPEnv(generator_params={"num_loc": NODES}, _torchrl_mode=torchrl_mode)
    model = make_model(env=env)
    with pytest.raises(UnsupportedError, match="reward at every step, got tsp"):
        model.collect(model.env.generate(2), 0)


def test_torchrl_mode_gives_the_same_transitions():
    """Its states have no reward in the beginning, and a record of actions that stays empty."""
    found = []
    for torchrl_mode in (False, True):
        params = {"num_loc": NODES}
        env = DenseRewardTSPEnv(generator_params=params, _torchrl_mode=torchrl_mode)
        model = make_model(env=env)
        model.collect(env.generator(4, rng=torch.Generator().manual_seed(0)), 0)
        found.append(transitions(model))
    plain, torchrl = found
    assert set(plain.keys()) == set(torchrl.keys())
    for key in plain.keys():
        assert torch.equal(plain[key], torchrl[key]), key


@pytest.mark.parametrize("env_cls", [JSSPEnv, FJSPEnv])
def test_job_shops_are_trained_in_torchrl_mode(env_cls, tmp_path: Path):
    """Two batches of training, a validation."""
    params = {"num_jobs": 3, "num_machines": 2}
    env = env_cls(generator_params=params, stepwise_reward=True, _torchrl_mode=True)
    policy_kwargs = {"embed_dim": 16, "num_heads": 2, "feedforward_hidden": 16}
    model = L2DPPOModel(env, policy_kwargs=policy_kwargs, **{**SIZES, "train_data_size": 8})
    trainer = fit(model, tmp_path)
    assert trainer.global_step > 0
    assert torch.isfinite(trainer.callback_metrics["val/reward"])


def test_the_batch_is_left_alone():
    model = make_model()
    batch = model.env.generate(3)
    before = batch.clone()
    model.collect(batch, 0)
    assert set(batch.keys()) == set(before.keys())
    assert bool((batch == before).all())


# ---------------------------------------------------------------- the buffer


def test_buffer_keeps_instances_once():
    """Two batches of two instances; a transition finds its own instance again."""
    buffer = TransitionBuffer(100)
    for k in range(2):
        rows = torch.tensor([0, 1, 1])
        step = {"x": torch.tensor([1.0, 2.0, 3.0]) + 10 * k, INSTANCE: rows}
        buffer.add(step, {"locs": torch.tensor([[0.5], [0.7]]) + k})
    td = buffer.get(torch.tensor([5, 0, 4]), torch.device("cpu"))
    assert td["x"].tolist() == [13.0, 1.0, 12.0]
    assert td["locs"].flatten().tolist() == pytest.approx([1.7, 0.5, 1.7])
    assert set(td.keys()) == {"x", "locs"}
    copy = TransitionBuffer(100)
    copy.load_state_dict(buffer.state_dict(), torch.device("cpu"))
    again = copy.get(torch.tensor([5, 0, 4]), torch.device("cpu"))
    assert bool((again == td).all())
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.state_dict() == {}


def test_buffer_of_another_size_after_an_update():
    buffer = TransitionBuffer(10)
    for width in (3, 4):
        buffer.add({"x": torch.ones(2, width), INSTANCE: torch.arange(2)}, {"y": torch.ones(2, 1)})
        assert buffer.get(torch.tensor([1]), torch.device("cpu"))["x"].shape == (1, width)
        buffer.clear()
    buffer.add({"x": torch.ones(2, 3), INSTANCE: torch.arange(2)}, {"y": torch.ones(2, 1)})
    with pytest.raises(ConfigError, match="several sizes"):
        buffer.add({"x": torch.ones(2, 4), INSTANCE: torch.arange(2)}, {"y": torch.ones(2, 1)})


def test_buffer_that_is_too_small():
    """On-policy transitions must not get lost."""
    model = make_model(buffer_size=3 * NODES)
    with pytest.raises(ConfigError, match=r"buffer_size = 15 .* got 20"):
        model.collect(model.env.generate(4), 0)


# ---------------------------------------------------------------- the loss


def test_ratio_is_one_before_the_first_update():
    model = make_model()
    model.collect(model.env.generate(8), 0)
    out = model.calculate_loss(transitions(model))
    assert float(out["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert float(out["clip_fraction"]) == 0.0


@pytest.mark.parametrize("normalize", [False, True])
def test_loss_is_the_sum_of_its_parts(normalize):
    """Recomputed row by row with a policy that has moved on since it acted."""
    model = make_model(clip_range=0.1, vf_lambda=0.7, entropy_lambda=0.3, normalize_adv=normalize)
    model.collect(model.env.generate(4), 0)
    td = transitions(model)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    out = model.calculate_loss(td)
    advantage = td["advantage"]
    if normalize:
        advantage = (advantage - advantage.mean()) / advantage.std(correction=0)
    gain = square = entropy = 0.0
    for row in range(len(td)):
        log_probs, value = model.policy.evaluate_state(td[row : row + 1])
        r = float((log_probs[0, td["action"][row]] - td["logprobs"][row]).exp())
        a = float(advantage[row])
        gain += min(r * a, min(max(r, 0.9), 1.1) * a)
        square += float((value[0] - td["target"][row]) ** 2)
        entropy += -sum(float(p.exp() * p) for p in log_probs[0] if p.isfinite())
    expected = (-gain + 0.7 * square - 0.3 * entropy) / len(td)
    assert float(out["loss"]) == pytest.approx(expected, abs=1e-4)
    assert float(out["clip_fraction"]) > 0.0


def test_gradients_of_actor_and_critic_are_separate():
    model = make_model()
    model.collect(model.env.generate(4), 0)
    out = model.calculate_loss(transitions(model))
    actor, critic = model.policy.actor, model.policy.critic
    for loss, moved, resting in (
        (out["surrogate_loss"], actor, critic),
        (out["value_loss"], critic, actor),
    ):
        model.zero_grad()
        loss.backward(retain_graph=True)
        assert any(p.grad is not None and p.grad.any() for p in moved.parameters())
        assert all(p.grad is None for p in resting.parameters())


# ---------------------------------------------------------------- with the trainer


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        # 20 transitions per batch: ceil(20 / 8) mini-batches, twice, in each of 4 batches
        ({}, 3 * 2 * 4),
        ({"mini_batch_size": 0.5, "ppo_epochs": 1}, 2 * 4),
        # updates after batches 3 and 4 (the last): 60 and 20 transitions
        ({"update_timestep": 3, "ppo_epochs": 1}, 8 + 3),
    ],
)
def test_number_of_updates(options, updates, tmp_path):
    trainer = fit(make_model(**options), tmp_path)
    assert trainer.global_step == updates


def test_training_moves_all_weights(tmp_path):
    model = make_model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    trainer = fit(model, tmp_path)
    assert all(not torch.equal(w, before[n]) for n, w in model.named_parameters())
    names = ("reward", "loss", "surrogate_loss", "value_loss", "entropy", "clip_fraction")
    assert {f"train/{name}" for name in names} | {"val/reward"} <= set(trainer.callback_metrics)
    assert len(model.buffer) == 0


def test_mixed_precision(tmp_path):
    model = make_model()
    fit(model, tmp_path, precision="bf16-mixed")
    assert all(bool(w.isfinite().all()) for w in model.parameters())


@pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
@pytest.mark.parametrize("update_timestep", [1, 3])
def test_resuming_changes_nothing(update_timestep, tmp_path):
    """Also between two updates, with transitions that wait for the next one."""

    class EveryBatch(Callback):
        def on_train_batch_end(self, trainer, model, outputs, batch, batch_idx):
            waiting.append(len(model.buffer))
            name = f"{trainer.current_epoch}-{batch_idx}.ckpt"
            trainer.save_checkpoint(tmp_path / name)

    waiting: list[int] = []
    options = {"update_timestep": update_timestep, "reward_scale": "norm", "train_data_size": 16}

    def run(ckpt: Path | None) -> Any:
        model, curve = make_model(**options), LearningCurve()
        callbacks = [curve] if ckpt else [curve, EveryBatch()]
        fit(model, tmp_path, ckpt, callbacks=callbacks, max_epochs=2)
        return model.state_dict(), [
            {k: v for k, v in entry.items() if k != "seconds"} for entry in curve.history
        ]

    whole = run(None)
    assert (max(waiting) > 0) is (update_timestep > 1)
    for file in sorted(tmp_path.glob("*.ckpt"))[:-2]:
        weights, history = run(file)
        assert history == whole[1], file
        assert all(torch.equal(value, whole[0][key]) for key, value in weights.items()), file


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"clip_range": 0.0}, "clip_range"),
        ({"ppo_epochs": 0}, "ppo_epochs"),
        ({"mini_batch_size": 1.5}, "mini_batch_size"),
        ({"update_timestep": 0}, "update_timestep"),
        ({"buffer_size": 0}, "buffer_size"),
        ({"gamma": 1.5}, "gamma"),
        ({"gae_lambda": -0.1}, "gae_lambda"),
        ({"reward_scale": "normal"}, "reward_scale"),
        ({"policy": torch.nn.Linear(2, 2)}, "act and evaluate"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ConfigError, match=words):
        make_model(**options)


def test_shared_step():
    """A loss with gradients for training, a reward alone for validation; nothing stays behind."""
    model = make_model()
    batch = model.env.generate(4)
    out = model.shared_step(batch, 0, "train")
    out["loss"].backward()
    assert all(isinstance(p.grad, torch.Tensor) for p in model.parameters())
    assert len(model.buffer) == 0
    with torch.no_grad():
        val = model.shared_step(batch, 0, "val")
    assert "loss" not in val


# ---------------------------------------------------------------- learning


@pytest.mark.learning
def test_training_improves(tmp_path, require):
    """Ten nodes: the tiny policy learns to go to near nodes."""
    env = DenseRewardTSPEnv(generator_params={"num_loc": 10})
    model = make_model(
        env=env, batch_size=64, train_data_size=64 * 30, mini_batch_size=160,
        optimizer_kwargs={"lr": 5e-3}, normalize_adv=True,
    )  # fmt: skip
    choose_at_random_(model.policy.actor[-1])
    ratio = cost_ratio(model, lambda: fit(model, tmp_path))
    require("cost after / before", ratio, below=0.85)


# ---------------------------------------------------------------- constructive policies


def attention_model(**options: Any) -> AttentionModelPolicy:
    small = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1, "normalization": "instance"}
    return AttentionModelPolicy(**{"env_name": "tsp_dense", **small, **options})


def test_constructive_policy_evaluates_steps_as_it_decodes_them():
    """Log-probabilities of single steps add up to that of the solution in the decode loop."""
    model = make_model(policy=attention_model())
    batch = model.env.generator(3)
    policy = model.policy.policy
    td = model.env.reset(batch)
    out = policy(td, model.env, decode_type="sampling", return_sum_log_likelihood=False)
    for step, action in enumerate(out["actions"].unbind(-1)):
        td["action"] = action
        log_prob, value, entropy = model.policy.evaluate(td)
        torch.testing.assert_close(log_prob, out["log_likelihood"][:, step], atol=1e-5, rtol=0)
        assert value.shape == entropy.shape == (3,)
        td = model.env.step(td)["next"]
    acted = model.policy.act(model.env.reset(batch), model.env, phase="test")
    greedy = policy(model.env.reset(batch), model.env, decode_type="greedy")["actions"]
    assert torch.equal(acted["action"], greedy[:, 0])


def test_policies_whose_steps_depend_on_each_other_raise():
    """A memory of earlier actions, or embeddings that are not one per action."""
    with pytest.raises(UnsupportedError, match=r"without memory.*PointerNetworkPolicy"):
        make_model(policy=PointerNetworkPolicy(env_name="tsp", embed_dim=16, hidden_dim=16))
    env = FJSPEnv(generator_params={"num_jobs": 2, "num_machines": 2}, stepwise_reward=True)
    model = make_model(env=env, policy=L2DPolicy(embed_dim=16, env_name="fjsp"))
    with pytest.raises(UnsupportedError, match="one embedding for each of"):
        model.policy.act(env.reset(batch_size=[2]), env)


@pytest.mark.learning
def test_attention_model_learns(tmp_path: Path, require: Any):
    """The Attention Model on the TSP with dense rewards, as in `routing/tsp-stepwise-ppo`."""
    env = DenseRewardTSPEnv(generator_params={"num_loc": 8})
    model = make_model(
        env=env, policy=attention_model(embed_dim=32, num_heads=4), batch_size=64,
        train_data_size=64 * 20, mini_batch_size=128, optimizer_kwargs={"lr": 1e-3},
        normalize_adv=True,
    )  # fmt: skip
    ratio = cost_ratio(model, lambda: fit(model, tmp_path))
    require("cost after / before", ratio, below=0.85)
