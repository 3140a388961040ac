"""Advantage actor-critic (Konda and Tsitsiklis, 1999): REINFORCE with a learned baseline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import CriticBaseline, REINFORCEBaseline
from rl4co.models.rl.critic import CriticNetwork
from rl4co.models.rl.optimizers import check_optimization
from rl4co.models.rl.reinforce import REINFORCE


class A2C(REINFORCE):
    """Advantage actor-critic.

    $$\\nabla L = -E\\left[(R(a, x) - V(x)) \\nabla \\log \\pi(a | x)\\right], \\qquad
      L_V = E\\left[(R(a, x) - V(x))^2\\right]$$

    Actor and critic share no weights, and each has its own settings of the optimizer.

    Args:
        env: Environment.
        policy: Policy (the actor).
        critic: Critic (default: a copy of the policy's encoder with a value head).
        critic_kwargs: Arguments of the default critic, see
            :func:`~rl4co.models.rl.critic.create_critic_from_actor`.
        actor_optimizer_kwargs: Arguments of the optimizer for the policy (default `{"lr": 1e-4}`).
        critic_optimizer_kwargs: The same for the critic (default: as for the policy).
        baseline: Only "critic", which is the critic above.
        baseline_kwargs: None; those of the critic are `critic_kwargs`.
        kwargs: See :class:`REINFORCE`; `optimizer_kwargs` holds for what the two above leave out.
    """

    losses = ("reinforce",)

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module,
        critic: CriticNetwork | None = None,
        critic_kwargs: Mapping[str, Any] | None = None,
        actor_optimizer_kwargs: Mapping[str, Any] | None = None,
        critic_optimizer_kwargs: Mapping[str, Any] | None = None,
        *,
        baseline: str = "critic",
        baseline_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if baseline != "critic" or baseline_kwargs:
            raise ConfigError(
                "expected no baseline for A2C, whose baseline is its critic, got one; pass critic "
                "or critic_kwargs, or use REINFORCE"
            )
        if critic is not None and critic_kwargs:
            raise ConfigError("expected critic or critic_kwargs, got both; give one of them")
        learned: REINFORCEBaseline | str = "critic" if critic is None else CriticBaseline(critic)
        super().__init__(env, policy, learned, critic_kwargs, **kwargs)
        actor = {"lr": 1e-4} if actor_optimizer_kwargs is None else actor_optimizer_kwargs
        self.actor_optimizer_kwargs = dict(actor)
        self.critic_optimizer_kwargs = dict(
            self.actor_optimizer_kwargs
            if critic_optimizer_kwargs is None
            else critic_optimizer_kwargs
        )
        for options in (self.actor_optimizer_kwargs, self.critic_optimizer_kwargs):
            check_optimization(
                self.optimizer, {**self.optimizer_kwargs, **options}, None, None, "epoch"
            )

    def trainable_parameters(self) -> list[dict[str, Any]]:
        """Two groups: the policy and the critic."""
        groups = [
            (self.policy, self.actor_optimizer_kwargs),
            (self.baseline, self.critic_optimizer_kwargs),
        ]
        return [
            {"params": [p for p in module.parameters() if p.requires_grad], **options}
            for module, options in groups
        ]
