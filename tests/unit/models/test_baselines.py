"""Baselines of REINFORCE: values by hand, and that they leave the policy alone."""

from __future__ import annotations

import copy
import math
import threading

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs import CVRPEnv, TSPEnv
from rl4co.models import REINFORCE, AttentionModelPolicy, get_reinforce_baseline
from rl4co.models.rl.baselines import (
    BASELINES,
    BaselineOutput,
    CriticBaseline,
    EpochContext,
    ExponentialBaseline,
    MeanBaseline,
    NoBaseline,
    REINFORCEBaseline,
    RolloutBaseline,
    SharedBaseline,
    WarmupBaseline,
    improvement_p_value,
)
from rl4co.models.rl.critic import CriticNetwork, create_critic_from_actor
from rl4co.models.rl.losses import critic_loss, reinforce_loss
from rl4co.models.rl.reward_scaling import RewardScaler


@pytest.fixture
def env() -> TSPEnv:
    return TSPEnv(generator_params={"num_loc": 6})


@pytest.fixture
def policy() -> AttentionModelPolicy:
    """With batch normalisation, whose statistics show if a forward pass was in training mode."""
    return AttentionModelPolicy(embed_dim=16, num_heads=2, num_encoder_layers=1)


@pytest.fixture
def td(env: TSPEnv, rng: torch.Generator) -> Any:
    return env.reset(env.generator(5, rng=rng))


def context(policy: nn.Module, env: TSPEnv, epoch: int = 0) -> EpochContext:
    return EpochContext(policy, env, epoch, batch_size=16, seed=1, device=torch.device("cpu"))


def make_better(policy: AttentionModelPolicy, env: TSPEnv) -> None:
    """A few steps of imitation towards short tours, so that the policy beats its earlier self."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for seed in range(40):
        td = env.reset(env.generator(64, rng=torch.Generator().manual_seed(seed)))
        out = policy(td, env, num_samples=8, rng=torch.Generator().manual_seed(seed))
        reward = out["reward"].view(8, 64)
        advantage = reward - reward.mean(0)
        loss = reinforce_loss(advantage, out["log_likelihood"].view(8, 64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---------------------------------------------------------------- values


def test_no_baseline_is_zero(td: Any, env: TSPEnv) -> None:
    value, loss = NoBaseline()(td, torch.tensor([1.0, 2.0]), env)
    assert value.tolist() == [0.0, 0.0]
    assert float(loss) == 0.0


def test_mean_is_a_constant(td: Any, env: TSPEnv) -> None:
    reward = torch.tensor([-1.0, -4.0], requires_grad=True)
    value, loss = MeanBaseline()(td, reward, env)
    assert float(value) == -2.5
    assert not value.requires_grad
    assert float(loss) == 0.0


def test_mean_of_processes_with_uneven_batches(
    td: Any, env: TSPEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every solution counts the same: (1 + 2 + 3 + 6) / 4 = 3, not (2 + 6) / 2 = 4."""
    batches = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([6.0])]
    sent: list[Tensor] = []
    everyone = threading.Barrier(len(batches))

    def all_reduce(values: Tensor) -> None:
        sent.append(values.clone())
        everyone.wait(timeout=60)
        values.copy_(torch.stack(sent).sum(0))

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: len(batches))
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with ThreadPoolExecutor(len(batches)) as processes:
        means = processes.map(lambda reward: MeanBaseline()(td, reward, env).value, batches)
    assert [mean.item() for mean in means] == [3.0, 3.0]


def test_exponential_average(td: Any, env: TSPEnv) -> None:
    """First the mean itself, then 0.8 · 1 + 0.2 · 2 = 1.2 and 0.8 · 1.2 + 0.2 · 7 = 2.36."""
    baseline = ExponentialBaseline(beta=0.8)
    values = [float(baseline(td, torch.tensor([m - 1, m + 1]), env).value) for m in (1.0, 2.0, 7.0)]
    assert values == pytest.approx([1.0, 1.2, 2.36])
    with pytest.raises(ConfigError, match=r"beta in \[0, 1\), got 1\.0"):
        ExponentialBaseline(beta=1.0)


def test_shared_is_the_mean_of_an_instance(td: Any, env: TSPEnv) -> None:
    value, _ = SharedBaseline()(td, torch.tensor([[1.0, 3.0], [10.0, 20.0]]), env)
    assert value.tolist() == [[2.0], [15.0]]
    for reward in (torch.zeros(4), torch.zeros(4, 1)):
        with pytest.raises(ConfigError, match="several solutions per instance"):
            SharedBaseline()(td, reward, env)


# ---------------------------------------------------------------- critic


def test_critic_learns_towards_the_reward(
    td: Any, env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """The loss is the squared error, and a step along its gradient moves values to the reward."""
    baseline = CriticBaseline(embed_dim=16, hidden_dim=8)
    baseline.setup(policy, env)
    assert isinstance(baseline.critic, CriticNetwork)
    reward = torch.full((5,), -20.0)
    value, loss = baseline(td, reward, env)
    assert value.shape == (5,)
    assert not value.requires_grad
    assert float(loss.detach()) == pytest.approx(float((value + 20.0).square().mean()))
    loss.backward()
    optimizer = torch.optim.SGD(baseline.critic.value_head.parameters(), lr=1e-3)
    optimizer.step()
    after = baseline(td, reward, env)
    assert bool((after.value < value).all())  # down, towards -20
    assert bool(after.loss < loss)


def test_critic_starts_at_the_mean_reward(
    td: Any, env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """Values shift together; several solutions per instance count alike."""
    baseline = CriticBaseline(embed_dim=16, hidden_dim=8)
    baseline.setup(policy, env)
    critic = baseline.critic
    assert critic is not None
    first = critic(td)
    reward = torch.linspace(-30.0, -10.0, 15).view(5, 3)  # mean -20
    WarmupBaseline(baseline).start(td, reward)
    values = critic(td)
    assert float(values.mean()) == pytest.approx(-20.0, abs=1e-4)
    torch.testing.assert_close(values - first, (values - first).mean().expand(5))


def test_critic_that_is_frozen_or_customized_is_not_shifted(
    td: Any, policy: AttentionModelPolicy
) -> None:
    frozen = create_critic_from_actor(policy).requires_grad_(False)
    own = CriticNetwork(policy.encoder, nn.Sequential(nn.Linear(16, 1, bias=False)))
    custom = CriticNetwork(nn.Linear(2, 2), nn.Linear(2, 1), customized=True)
    for critic in (frozen, own, custom):
        before = copy.deepcopy(critic.state_dict())
        critic.center_(td, torch.full((5,), -20.0))
        assert all(torch.equal(before[key], value) for key, value in critic.state_dict().items())


def test_critic_loss_is_not_negative() -> None:
    """((1 - 3)² + (2 - 2)²) / 2 = 2; the reward is a constant."""
    reward = torch.tensor([3.0, 2.0], requires_grad=True)
    value = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = critic_loss(value, reward)
    assert float(loss) == 2.0
    loss.backward()
    assert value.grad is not None
    assert value.grad.tolist() == [-2.0, 0.0]
    assert reward.grad is None


def test_critic_has_its_own_encoder(env: TSPEnv, policy: AttentionModelPolicy) -> None:
    model = REINFORCE(env, policy, "critic", {"embed_dim": 16})
    assert model.baseline.critic.encoder is not policy.encoder
    learning = {
        id(p) for group in model.configure_optimizers().param_groups for p in group["params"]
    }
    assert {id(p) for p in model.baseline.parameters()} <= learning


# ---------------------------------------------------------------- rollout


def test_rollout_value_is_greedy(td: Any, env: TSPEnv, policy: AttentionModelPolicy) -> None:
    """Sampling would give other values; repeated calls agree."""
    baseline = RolloutBaseline(dataset_size=8)
    baseline.setup(policy, env)
    value, loss = baseline(td, torch.zeros(5), env)
    expected = copy.deepcopy(policy).eval()(td, env, phase="val", decode_type="greedy")["reward"]
    assert torch.equal(value, expected)
    assert torch.equal(baseline(td, torch.zeros(5), env).value, value)
    assert not value.requires_grad
    assert float(loss) == 0.0
    assert baseline(td, torch.zeros(5, 3), env).value.shape == (5, 1)


def test_frozen_policy_stays_in_evaluation_mode(
    td: Any, env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """`model.train()` does not reach it, and its statistics do not move."""
    model = REINFORCE(env, policy, RolloutBaseline(dataset_size=8))
    frozen = model.baseline.frozen
    model.train()
    assert policy.training
    assert not any(module.training for module in frozen.policy.modules())
    before = {key: value.clone() for key, value in frozen.state_dict().items()}
    for _ in range(2):
        model.baseline(td, torch.zeros(5), env)
    after = frozen.state_dict()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


@pytest.mark.parametrize("training", [True, False])
def test_baseline_leaves_the_policy_alone(
    training: bool, td: Any, env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """Neither its mode nor its batch statistics nor its weights change, and no graph is kept."""
    policy.train(training)
    baseline = RolloutBaseline(dataset_size=20)
    baseline.setup(policy, env)
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    baseline(td, torch.zeros(5), env)
    baseline.epoch_callback(context(policy, env))
    assert all(module.training is training for module in policy.modules())
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
    assert all(parameter.requires_grad for parameter in policy.parameters())


def test_frozen_weights_are_not_optimized(env: TSPEnv, policy: AttentionModelPolicy) -> None:
    model = REINFORCE(env, policy, "rollout", {"dataset_size": 8})
    learning = [p for group in model.configure_optimizers().param_groups for p in group["params"]]
    assert {id(p) for p in learning} == {id(p) for p in policy.parameters()}
    assert not any(p.requires_grad for p in model.baseline.parameters())


def test_copy_is_replaced_only_by_a_better_policy(
    td: Any, env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """It follows the policy after a significant improvement, not before and not otherwise."""
    baseline = RolloutBaseline(bl_alpha=0.05, dataset_size=200)
    baseline.setup(policy, env)
    frozen = baseline.frozen
    same = baseline.epoch_callback(context(policy, env))
    assert baseline.frozen is frozen
    assert same["baseline/p_value"] == 1.0  # no difference at all
    assert same["baseline/updated"] == 0.0

    make_better(policy, env)
    assert baseline.frozen is frozen  # a copy: training the policy does not touch it
    better = baseline.epoch_callback(context(policy, env, epoch=1))
    assert better["baseline/p_value"] < 0.05
    assert better["baseline/updated"] == 1.0
    assert baseline.frozen is not frozen
    assert better["baseline/reward"] > same["baseline/reward"]
    expected = copy.deepcopy(policy).eval()(td, env, phase="val", decode_type="greedy")["reward"]
    assert torch.equal(baseline(td, torch.zeros(5), env).value, expected)

    # Now the first copy would be the worse candidate.
    worse = baseline.epoch_callback(context(frozen.policy, env, epoch=2))
    assert worse["baseline/p_value"] > 0.95
    assert worse["baseline/updated"] == 0.0


def test_comparison_uses_fresh_instances_of_the_epoch(
    env: TSPEnv, policy: AttentionModelPolicy
) -> None:
    """The same in a repeated epoch (a resumed run), others in the next one."""
    baseline = RolloutBaseline(dataset_size=20)
    baseline.setup(policy, env)
    rewards = [
        baseline.epoch_callback(context(policy, env, epoch))["baseline/reward"]
        for epoch in (0, 0, 1)
    ]
    assert rewards[0] == rewards[1] != rewards[2]


def test_paired_t_test() -> None:
    """Differences 1, 1, 2, 0: mean 1, deviation √(2/3), t = 1 / (√(2/3) / 2) = √6, 3 degrees.

    The distribution function for 3 degrees of freedom is
    1/2 + (1/π) [ (t/√3) / (1 + t²/3) + arctan(t/√3) ], here 1/2 + (1/π) [ √2/3 + arctan √2 ].
    """
    ours, theirs = torch.tensor([2.0, 3.0, 5.0, 4.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])
    expected = 0.5 - (math.sqrt(2) / 3 + math.atan(math.sqrt(2))) / math.pi
    assert expected == pytest.approx(0.0458, abs=1e-4)
    assert improvement_p_value(ours, theirs) == pytest.approx(expected, rel=1e-6)
    assert improvement_p_value(theirs, ours) == pytest.approx(1 - expected, rel=1e-6)
    # Without any variation the answer is certain.
    assert improvement_p_value(theirs + 1, theirs) == 0.0
    assert improvement_p_value(theirs, theirs) == 1.0
    assert improvement_p_value(theirs - 1, theirs) == 1.0


@pytest.mark.parametrize("options", [{"bl_alpha": 0.0}, {"bl_alpha": 1.0}, {"dataset_size": 1}])
def test_rollout_raises_for_invalid_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="bl_alpha in"):
        RolloutBaseline(**options)


# ---------------------------------------------------------------- warm-up


class Constant(REINFORCEBaseline):
    """Always -10, with a loss of 4; counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, td: Any, reward: Tensor, env: Any) -> BaselineOutput:
        self.calls += 1
        return BaselineOutput(torch.full_like(reward, -10.0), torch.tensor(4.0))


def test_warmup_blends(td: Any, env: TSPEnv, policy: AttentionModelPolicy) -> None:
    """Over 2 epochs: mean reward, half of each, the final baseline alone; never beyond."""
    final = Constant()
    baseline = WarmupBaseline(final, n_epochs=2)
    reward = torch.tensor([-1.0, -3.0])  # mean -2 in every batch
    seen = []
    for epoch in range(5):
        value, loss = baseline(td, reward, env)
        seen.append((float(value.mean()), float(loss)))
        baseline.epoch_callback(context(policy, env, epoch))
        assert 0.0 <= float(baseline.alpha) <= 1.0
    assert seen == [(-2.0, 0.0), (-6.0, 2.0), (-10.0, 4.0), (-10.0, 4.0), (-10.0, 4.0)]
    assert final.calls == 4  # not in the first epoch, where its weight is zero
    with pytest.raises(ConfigError, match="n_epochs of at least 1"):
        WarmupBaseline(final, n_epochs=0)


def test_warmup_is_part_of_the_state(env: TSPEnv, policy: AttentionModelPolicy, td: Any) -> None:
    """The weight of the blend and the average come back with a checkpoint."""
    one, two = (get_reinforce_baseline("rollout", dataset_size=8, n_epochs=2) for _ in range(2))
    for baseline in (one, two):
        baseline.setup(policy, env)
    one(td, torch.tensor([-1.0, -3.0, -2.0, -2.0, -2.0]), env)
    one.epoch_callback(context(policy, env))
    two.load_state_dict(one.state_dict())
    assert float(two.alpha) == 0.5
    assert float(two.warmup.average) == -2.0


# ---------------------------------------------------------------- by name


def test_baselines_by_name() -> None:
    assert set(BASELINES) == {"no", "mean", "exponential", "shared", "rollout", "critic", "warmup"}
    rollout = get_reinforce_baseline("rollout", bl_alpha=0.1, n_epochs=3)
    assert isinstance(rollout, WarmupBaseline)  # as in Kool et al. (2019)
    assert isinstance(rollout.baseline, RolloutBaseline)
    assert (rollout.n_epochs, rollout.baseline.bl_alpha) == (3, 0.1)
    warmup = get_reinforce_baseline("warmup", baseline="critic", warmup_exp_beta=0.5)
    assert isinstance(warmup.baseline, CriticBaseline)
    assert warmup.warmup.beta == 0.5
    with pytest.raises(UnknownNameError, match="did you mean 'exponential'"):
        get_reinforce_baseline("exponental")


def test_object_and_arguments_exclude_each_other(env: TSPEnv, policy: AttentionModelPolicy) -> None:
    with pytest.raises(ConfigError, match="baseline_kwargs with a baseline's name only"):
        REINFORCE(env, policy, NoBaseline(), {"beta": 0.8})


# ---------------------------------------------------------------- the loss around them


def test_loss_by_hand() -> None:
    """Advantages 2, -1 and log-likelihoods -3, -5: -(2 · -3 + -1 · -5) / 2 = 0.5."""
    likelihood = torch.tensor([-3.0, -5.0], requires_grad=True)
    advantage = torch.tensor([2.0, -1.0], requires_grad=True)
    loss = reinforce_loss(advantage, likelihood)
    assert float(loss) == 0.5
    loss.backward()
    assert likelihood.grad is not None
    assert likelihood.grad.tolist() == [-1.0, 0.5]  # a better solution becomes more likely
    assert advantage.grad is None


def test_reward_scaler_by_hand() -> None:
    """Scores 1, 3 then 5: mean 2 and variance 2, then mean 3 and variance 4."""
    scaler = RewardScaler("norm")
    first = scaler(torch.tensor([1.0, 3.0]))
    assert first.tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)])
    assert scaler(torch.tensor([5.0])).tolist() == pytest.approx([1.0])
    assert (float(scaler.count), float(scaler.mean), float(scaler.squares)) == (3.0, 3.0, 8.0)
    scale = RewardScaler("scale")
    assert scale(torch.tensor([1.0, 3.0])).tolist() == pytest.approx(
        [1 / math.sqrt(2), 3 / math.sqrt(2)]
    )
    assert RewardScaler(4.0)(torch.tensor([2.0])).tolist() == [0.5]
    assert RewardScaler()(torch.tensor([2.0])).tolist() == [2.0]
    for wrong in ("nrom", 0.0, -1.0):
        with pytest.raises(ConfigError):
            RewardScaler(wrong)


def test_batch_of_one(policy: AttentionModelPolicy) -> None:
    """Every baseline of single solutions works at batch size 1 (layers normalised per instance)."""
    for env in (TSPEnv(generator_params={"num_loc": 5}), CVRPEnv(generator_params={"num_loc": 5})):
        td = env.reset(env.generator(1))
        for name in ("no", "mean", "exponential", "rollout", "critic"):
            small = AttentionModelPolicy(
                env_name=env.name, embed_dim=16, num_heads=2, normalization="instance"
            )
            options: dict[str, Any] = {"embed_dim": 16} if name == "critic" else {}
            model = REINFORCE(env, small, name, options)
            out = model.policy(td, env, phase="train")
            model.calculate_loss(td, td, out)["loss"].backward()
            assert bool(torch.isfinite(out["loss"]))
