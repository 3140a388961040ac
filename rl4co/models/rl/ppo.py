"""Proximal policy optimization of complete solutions (Schulman et al., 2017).

A solution is one action here: constructing it step by step is how the policy computes, not part of
the decision process (Kool et al., 2019, see it the same way). For rewards at every step see
:mod:`rl4co.models.rl.stepwise_ppo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.critic import CriticNetwork, create_critic_from_actor
from rl4co.models.rl.inner_loop import InnerLoop, check_mini_batch_size
from rl4co.models.rl.losses import (
    clipped_surrogate_loss,
    huber_critic_loss,
    probability_ratio,
    standardize,
)

#: Metrics of an update, besides the reward.
PPO_METRICS = ("loss", "surrogate_loss", "value_loss", "entropy", "clip_fraction", "approx_kl")


class Solutions(NamedTuple):
    """What the policy did with a batch.

    Attributes:
        td: State after reset, batch `[B]`.
        actions: `[B, T]`.
        log_likelihood: `[B]`, under the weights that chose the actions.
        reward: `[B]`.
    """

    td: TensorDictBase
    actions: Tensor
    log_likelihood: Tensor
    reward: Tensor

    def rows(self, index: Tensor) -> Solutions:
        """Some of the instances."""
        return Solutions(*(part[index] for part in self))


class PPO(InnerLoop):
    """Proximal policy optimization of complete solutions.

    $$L = -E\\left[\\min\\left(r A, \\mathrm{clip}(r, 1 - \\epsilon, 1 + \\epsilon) A\\right)
      \\right] + \\lambda_V L_V - \\lambda_H H(\\pi), \\qquad
      r = \\frac{\\pi(a | x)}{\\pi_{old}(a | x)}, \\quad A = R(a, x) - V(x)$$

    Each batch is solved once; several inner epochs of mini-batches learn from these solutions. The
    entropy $H$ is that of the distribution of solutions: the sum over steps of the entropies of
    actions, along the sampled solution.

    Args:
        env: Environment.
        policy: Policy (the actor).
        critic: Critic (default: a copy of the policy's encoder with a value head).
        critic_kwargs: Arguments of the default critic, see
            :func:`~rl4co.models.rl.critic.create_critic_from_actor`.
        clip_range: $\\epsilon$, the change of a solution's probability beyond which there is
            nothing to gain.
        ppo_epochs: Inner epochs.
        mini_batch_size: Instances per update: a number (at most `batch_size`), or a share of
            the batch.
        vf_lambda: Weight $\\lambda_V$ of the critic's loss (Huber).
        entropy_lambda: Weight $\\lambda_H$ of the entropy; without it the entropy is logged as its
            estimate $-\\log \\pi(a | x)$, which costs nothing.
        normalize_adv: Whether the advantages of a mini-batch are standardised.
        max_grad_norm: Largest norm of the gradient (actor and critic together); None does not clip.
        kwargs: See :class:`~rl4co.models.rl.base.RL4COLitModule`.
    """

    default_metrics = {"train": ("reward", *PPO_METRICS)}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        critic: CriticNetwork | None = None,
        critic_kwargs: Mapping[str, Any] | None = None,
        clip_range: float = 0.2,
        ppo_epochs: int = 2,
        mini_batch_size: int | float = 0.25,
        vf_lambda: float = 0.5,
        entropy_lambda: float = 0.0,
        normalize_adv: bool = False,
        max_grad_norm: float | None = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(env, policy, max_grad_norm, **kwargs)
        if critic is not None and critic_kwargs:
            raise ConfigError("expected critic or critic_kwargs, got both; give one of them")
        check_ppo(clip_range, ppo_epochs, mini_batch_size, vf_lambda, entropy_lambda)
        self.critic = critic or create_critic_from_actor(policy, **(critic_kwargs or {}))
        self.clip_range, self.ppo_epochs = clip_range, ppo_epochs
        self.mini_batch_size = mini_batch_size
        self.vf_lambda, self.entropy_lambda = vf_lambda, entropy_lambda
        self.normalize_adv = normalize_adv

    def shared_step(
        self, batch: TensorDictBase, batch_idx: int, phase: str, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        """Solves a batch; in training also the loss of the batch, before any update."""
        if phase == "train":
            solutions = self.solve(batch, batch_idx)
            out = {**self.calculate_loss(solutions), "reward": solutions.reward}
        else:
            td, rng = self.env.reset(batch), self.action_rng(phase, batch_idx)
            out = self.policy(td, self.env, phase=phase, rng=rng)
        return self.log_metrics(out, phase, dataloader_idx, batch_size=batch.batch_size[0])

    def learn(self, batch: TensorDictBase, batch_idx: int) -> dict[str, Any]:
        """Solves a batch and learns from the solutions; metrics are means over the updates."""
        solutions = self.solve(batch, batch_idx)
        if self.before_first_update:
            self.critic.center_(solutions.td, solutions.reward)
        metrics: list[dict[str, Tensor]] = []
        for inner_epoch in range(self.ppo_epochs):
            num_rows = len(solutions.reward)
            for rows in self.split_rows(num_rows, self.mini_batch_size, batch_idx, inner_epoch):
                out = self.calculate_loss(solutions.rows(rows))
                self.update_weights(out["loss"])
                metrics.append({key: value.detach() for key, value in out.items()})
        return {**mean_metrics(metrics), "reward": solutions.reward}

    @torch.no_grad()
    def solve(self, batch: TensorDictBase, batch_idx: int) -> Solutions:
        """Solutions sampled by the policy as it is."""
        td = self.env.reset(batch)
        out = self.policy(td, self.env, phase="train", rng=self.action_rng("train", batch_idx))
        if len(out["reward"]) != td.batch_size[0]:
            raise ConfigError(
                f"expected one solution per instance for PPO, got {len(out['reward'])} of "
                f"{td.batch_size[0]} instances; use train_decode_type='sampling'"
            )
        return Solutions(td, out["actions"], out["log_likelihood"], out["reward"])

    def calculate_loss(self, solutions: Solutions) -> dict[str, Tensor]:
        """`loss`, its parts, and how far the policy has moved away from the one that acted."""
        new = self.policy(
            solutions.td,
            self.env,
            phase="train",
            actions=solutions.actions,
            calc_reward=False,
            return_actions=False,
            return_entropy=self.entropy_lambda > 0,
        )
        value = self.critic(solutions.td).to(solutions.reward.dtype)  # [B]
        advantage = solutions.reward - value.detach()
        if self.normalize_adv:
            advantage = standardize(advantage)
        ratio = probability_ratio(new["log_likelihood"], solutions.log_likelihood)  # [B]
        # E[-log pi(a)] is the entropy, too.
        entropy = new["entropy"] if self.entropy_lambda > 0 else -new["log_likelihood"].detach()
        surrogate_loss = clipped_surrogate_loss(ratio, advantage, self.clip_range)
        value_loss = huber_critic_loss(value, solutions.reward)
        entropy_bonus = self.entropy_lambda * entropy.mean()
        auxiliary_loss = new.get("auxiliary_loss", 0.0)  # balance of experts, where there are any
        return {
            "loss": surrogate_loss + self.vf_lambda * value_loss - entropy_bonus + auxiliary_loss,
            "surrogate_loss": surrogate_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            **policy_shift(ratio, self.clip_range),
        }


def policy_shift(ratio: Tensor, clip_range: float) -> dict[str, Tensor]:
    """How far a policy has moved from the one that acted, for the logs.

    `clip_fraction` is the share of ratios outside the clip range, `approx_kl` the estimate
    $E[r - 1 - \\log r]$ of the Kullback-Leibler divergence.

    Args:
        ratio: New probability divided by old, any shape.
        clip_range: Clip range.
    """
    ratio = ratio.detach()
    return {
        "clip_fraction": ((ratio - 1.0).abs() > clip_range).float().mean(),
        "approx_kl": (ratio - 1.0 - ratio.log()).mean(),
    }


def mean_metrics(metrics: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Means over updates of means over mini-batches."""
    return {
        key: torch.stack([entry[key].detach().float().mean() for entry in metrics]).mean()
        for key in metrics[0]
    }


def check_ppo(
    clip_range: float,
    ppo_epochs: int,
    mini_batch_size: int | float,
    vf_lambda: float,
    entropy_lambda: float,
) -> None:
    """Raises for settings with which PPO learns nothing, or the wrong thing."""
    check_mini_batch_size(mini_batch_size)
    if not clip_range > 0:
        raise ConfigError(f"expected a positive clip_range, got {clip_range}")
    if isinstance(ppo_epochs, bool) or not isinstance(ppo_epochs, int) or ppo_epochs < 1:
        raise ConfigError(f"expected ppo_epochs to be an integer of at least 1, got {ppo_epochs!r}")
    for name, weight in (("vf_lambda", vf_lambda), ("entropy_lambda", entropy_lambda)):
        if not weight >= 0:
            raise ConfigError(f"expected {name} of at least 0, got {weight}")
