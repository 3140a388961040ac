"""Baselines of REINFORCE: what the reward is compared with.

A baseline maps a batch to values (constants for the policy gradient) and, if it learns, a loss. At
the end of an epoch it may look at the policy (`epoch_callback`).
"""

from __future__ import annotations

import copy
import math

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.adapters import adapt
from rl4co.core.arguments import ChecksArguments
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.rng import derive_generator
from rl4co.data.dataset import TensorDictDataset
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baseline_records import BaselineOutput, EpochContext
from rl4co.models.rl.critic import CriticNetwork, create_critic_from_actor
from rl4co.models.rl.losses import critic_loss
from rl4co.models.rl.processes import global_mean, num_processes


class REINFORCEBaseline(ChecksArguments, nn.Module):
    """Base class of all baselines; by itself the baseline that is zero."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt("baseline", cls)

    def __init__(self) -> None:
        super().__init__()

    def setup(self, policy: nn.Module, env: RL4COEnvBase, **options: Any) -> None:
        """Called once, before training.

        Args:
            policy: The policy in training.
            env: The environment.
            options: `batch_size`, `device` and `dataset_size` of validation.
        """

    def start(self, td: TensorDictBase, reward: Tensor) -> None:
        """Called with the first rewards that a trainer sees, before anything is learned from them.

        Args:
            td: State after reset, batch `[B]`.
            reward: `[B]`, or `[B, S]` with several solutions per instance.
        """

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """Values for a batch.

        Args:
            td: State after reset, batch `[B]`.
            reward: `[B]`, or `[B, S]` with several solutions per instance.
            env: The environment.
        """
        return BaselineOutput(torch.zeros_like(reward), reward.new_zeros(()))

    def epoch_callback(self, context: EpochContext) -> dict[str, float]:
        """Called at the end of each epoch; returns metrics to log."""
        return {}

    def eval(self, *args: Any) -> Any:
        """With the arguments of :meth:`forward` the same as a call; alone, torch's `eval()`."""
        return self(*args) if args else super().eval()

    def wrap_dataset(self, dataset: TensorDictDataset, *args: Any, **kwargs: Any) -> Any:
        """A data set with what the baseline knows about its instances in advance.

        It receives the instances of one batch, since they do not exist before; values under the
        key `extra` take the place of :meth:`forward`.

        Args:
            dataset: The instances.
            args: The environment.
            kwargs: `batch_size` and `device`.
        """
        return dataset

    def unwrap_batch(self, batch: TensorDictBase) -> tuple[TensorDictBase, Tensor | None]:
        """A batch of a wrapped data set and the values in it, or None."""
        return batch, batch.get("extra", None)


class NoBaseline(REINFORCEBaseline):
    """Zero."""


class MeanBaseline(REINFORCEBaseline):
    """Mean reward of the batch (of all processes together)."""

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """One constant for the batch."""
        return BaselineOutput(global_mean(reward), reward.new_zeros(()))


class ExponentialBaseline(REINFORCEBaseline):
    """Exponential moving average of the mean reward: $v \\leftarrow \\beta v + (1-\\beta) \\bar R$.

    Args:
        beta: Weight of the past, in [0, 1).
    """

    average: Tensor

    def __init__(self, beta: float = 0.8) -> None:
        super().__init__()
        if not 0.0 <= beta < 1.0:
            raise ConfigError(f"expected beta in [0, 1), got {beta}")
        self.beta = beta
        self.register_buffer("average", torch.tensor(torch.nan))

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """The average, this batch included."""
        mean = global_mean(reward)
        updated = self.beta * self.average + (1.0 - self.beta) * mean
        self.average = torch.where(self.average.isnan(), mean, updated)
        return BaselineOutput(self.average, reward.new_zeros(()))


class SharedBaseline(REINFORCEBaseline):
    """Mean reward of the solutions of the same instance (POMO)."""

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """One value per instance `[B, 1]`."""
        if reward.dim() < 2 or reward.shape[1] < 2:
            raise ConfigError(
                f"expected several solutions per instance for the shared baseline, got rewards of "
                f"shape {list(reward.shape)}; use multi-start or num_samples, or another baseline"
            )
        return BaselineOutput(reward.mean(1, keepdim=True), reward.new_zeros(()))


class CriticBaseline(REINFORCEBaseline):
    """A learned value of the instance.

    Args:
        critic: Network; by default built from the policy's encoder.
        critic_kwargs: Arguments of the default critic.
    """

    def __init__(self, critic: CriticNetwork | None = None, **critic_kwargs: Any) -> None:
        super().__init__()
        self.critic = critic
        self.critic_kwargs = critic_kwargs

    def setup(self, policy: nn.Module, env: RL4COEnvBase, **options: Any) -> None:
        """Builds the default critic."""
        if self.critic is None:
            self.critic = create_critic_from_actor(policy, **self.critic_kwargs)

    def start(self, td: TensorDictBase, reward: Tensor) -> None:
        """Lets the critic's values begin at the mean reward, see :meth:`CriticNetwork.center_`."""
        if self.critic is not None:
            self.critic.center_(td, reward)

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """Values `[B]` and the critic's loss."""
        if self.critic is None:
            raise ConfigError("expected setup() before use of the critic baseline")
        value = self.critic(td)
        while value.dim() < reward.dim():
            value = value.unsqueeze(-1)
        return BaselineOutput(value.detach(), critic_loss(value.expand_as(reward), reward))


class RolloutBaseline(REINFORCEBaseline):
    """Greedy reward of a frozen copy of the policy (Kool et al., 2019).

    After each epoch the copy is replaced if the policy is better on fresh instances by a one-sided
    paired t-test.

    Args:
        bl_alpha: Significance level of the test.
        dataset_size: Fresh instances of the test.
    """

    def __init__(self, bl_alpha: float = 0.05, dataset_size: int = 10_000) -> None:
        super().__init__()
        if not 0.0 < bl_alpha < 1.0 or dataset_size < 2:
            raise ConfigError(
                f"expected bl_alpha in (0, 1) and dataset_size of at least 2, got {bl_alpha} and "
                f"{dataset_size}"
            )
        self.bl_alpha, self.dataset_size = bl_alpha, dataset_size
        self.frozen: FrozenPolicy | None = None

    def setup(self, policy: nn.Module, env: RL4COEnvBase, **options: Any) -> None:
        """Takes the first copy."""
        self.frozen = FrozenPolicy(policy)

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """Greedy rewards of the copy on the same batch, `[B]` (or `[B, 1]` for `[B, S]`)."""
        if self.frozen is None:
            raise ConfigError("expected setup() before use of the rollout baseline")
        value = self.frozen.greedy_reward(td, env)
        return BaselineOutput(
            value if reward.dim() == 1 else value.unsqueeze(-1), reward.new_zeros(())
        )

    def epoch_callback(self, context: EpochContext) -> dict[str, float]:
        """Tests the policy against the copy and replaces the copy if it is better."""
        if self.frozen is None:
            raise ConfigError("expected setup() before use of the rollout baseline")
        candidate = FrozenPolicy(context.policy)
        _copy_from_first_process(candidate)
        rewards: list[tuple[Tensor, Tensor]] = []
        rng = derive_generator(context.seed, "baseline", context.epoch)
        for start in range(0, self.dataset_size, context.batch_size):
            size = min(context.batch_size, self.dataset_size - start)
            batch = (context.draw or context.env.generator)(size, rng).to(context.device)
            td = context.env.reset(batch)
            ours = candidate.greedy_reward(td, context.env)
            rewards.append((ours, self.frozen.greedy_reward(td, context.env)))
        ours, theirs = (torch.cat(column) for column in zip(*rewards, strict=True))
        p_value = improvement_p_value(ours, theirs)
        replaced = p_value < self.bl_alpha
        if replaced:
            self.frozen = candidate
        return {
            "baseline/p_value": p_value,
            "baseline/updated": float(replaced),
            "baseline/reward": float((ours if replaced else theirs).mean()),
        }


class WarmupBaseline(REINFORCEBaseline):
    """Blends from an exponential baseline to another one over the first epochs.

    Args:
        baseline: The baseline to end with.
        n_epochs: Epochs until it is used alone.
        warmup_exp_beta: `beta` of the exponential baseline.
    """

    def __init__(
        self, baseline: REINFORCEBaseline, n_epochs: int = 1, warmup_exp_beta: float = 0.8
    ) -> None:
        super().__init__()
        if n_epochs < 1:
            raise ConfigError(f"expected n_epochs of at least 1, got {n_epochs}")
        self.baseline = baseline
        self.warmup = ExponentialBaseline(warmup_exp_beta)
        self.n_epochs = n_epochs
        # A number, not a buffer: reading a tensor at every step would stall the device.
        self.alpha = 0.0

    def setup(self, policy: nn.Module, env: RL4COEnvBase, **options: Any) -> None:
        """Sets up the final baseline."""
        self.baseline.setup(policy, env, **options)

    def wrap_dataset(self, dataset: TensorDictDataset, *args: Any, **kwargs: Any) -> Any:
        """By the final baseline, once that is used alone."""
        if self.alpha < 1.0:
            return dataset
        return self.baseline.wrap_dataset(dataset, *args, **kwargs)

    def unwrap_batch(self, batch: TensorDictBase) -> tuple[TensorDictBase, Tensor | None]:
        """What was wrapped, if it was."""
        return (batch, None) if self.alpha < 1.0 else self.baseline.unwrap_batch(batch)

    def start(self, td: TensorDictBase, reward: Tensor) -> None:
        """Shows both baselines the first rewards."""
        self.warmup.start(td, reward)
        self.baseline.start(td, reward)

    def forward(self, td: TensorDictBase, reward: Tensor, env: RL4COEnvBase) -> BaselineOutput:
        """The blend; a baseline of weight zero is not computed."""
        alpha = self.alpha
        if alpha >= 1.0:
            return self.baseline(td, reward, env)
        early = self.warmup(td, reward, env)
        if alpha <= 0.0:
            return early
        late = self.baseline(td, reward, env)
        return BaselineOutput(
            alpha * late.value + (1.0 - alpha) * early.value,
            alpha * late.loss + (1.0 - alpha) * early.loss,
        )

    def epoch_callback(self, context: EpochContext) -> dict[str, float]:
        """Moves on with the blend."""
        metrics = self.baseline.epoch_callback(context)
        self.alpha = min(1.0, (context.epoch + 1) / self.n_epochs)
        return metrics

    def get_extra_state(self) -> Tensor:
        """The weight of the final baseline, for checkpoints."""
        return torch.tensor(self.alpha, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the weight from a checkpoint."""
        self.alpha = float(state)


class FrozenPolicy(nn.Module):
    """A copy of a policy that neither learns nor leaves evaluation mode."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = copy.deepcopy(policy).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> FrozenPolicy:
        """Does nothing: frozen statistics stay frozen."""
        return self

    @torch.no_grad()
    def greedy_reward(self, td: TensorDictBase, env: RL4COEnvBase) -> Tensor:
        """Rewards `[B]` of greedy solutions."""
        out = self.policy(td, env, phase="val", decode_type="greedy", return_actions=False)
        return out["reward"]


def improvement_p_value(candidate: Tensor, incumbent: Tensor) -> float:
    """One-sided p-value of a paired t-test that the candidate's mean reward is higher.

    Args:
        candidate: Rewards `[B]`.
        incumbent: Rewards of the same instances `[B]`.
    """
    from scipy.stats import t as student

    difference = (candidate - incumbent).double()
    mean, deviation = float(difference.mean()), float(difference.std())
    if deviation == 0.0:
        return 0.0 if mean > 0 else 1.0
    statistic = mean / (deviation / math.sqrt(len(difference)))
    return float(student.sf(statistic, len(difference) - 1))


def _copy_from_first_process(module: nn.Module) -> None:
    """Makes all processes agree: statistics of normalisation layers differ between them."""
    if num_processes() > 1:
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, src=0)


BASELINES: dict[str, Callable[..., REINFORCEBaseline]] = {
    "no": NoBaseline,
    "mean": MeanBaseline,
    "exponential": ExponentialBaseline,
    "shared": SharedBaseline,
    "rollout": RolloutBaseline,
    "critic": CriticBaseline,
    "warmup": WarmupBaseline,
}


def get_reinforce_baseline(name: str, **kwargs: Any) -> REINFORCEBaseline:
    """The baseline called `name`.

    Args:
        name: no, mean, exponential, shared, rollout, critic or warmup. "rollout" comes with a
            warm-up of one epoch, as in Kool et al. (2019).
        kwargs: Arguments of the baseline; for "rollout" and "warmup" also `n_epochs` and
            `warmup_exp_beta`. "warmup" accepts the final baseline as `baseline` (a name or object).
    """
    if name not in BASELINES:
        raise UnknownNameError("REINFORCE baseline", name, BASELINES)
    options = dict(kwargs)
    warmup = {key: options.pop(key) for key in ("n_epochs", "warmup_exp_beta") if key in options}
    if BASELINES[name] is RolloutBaseline:
        return WarmupBaseline(RolloutBaseline(**options), **warmup)
    if BASELINES[name] is not WarmupBaseline:
        return BASELINES[name](**options, **warmup)
    final = options.pop("baseline", "rollout")
    if isinstance(final, str):
        if final not in BASELINES:
            raise UnknownNameError("REINFORCE baseline", final, BASELINES)
        final = BASELINES[final](**options)
    elif options:
        raise ConfigError(f"expected no arguments for a baseline object, got {sorted(options)}")
    return WarmupBaseline(final, **warmup)
