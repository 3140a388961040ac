"""Attention Model trained with proximal policy optimization (Schulman et al., 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.critic import CriticNetwork
from rl4co.models.rl.ppo import PPO
from rl4co.models.zoo.am import AttentionModelPolicy

#: Settings of the RL4CO paper that differ from PPO's: mini-batches as large as its batches, and an
#: entropy bonus.
PPO_DEFAULTS: Mapping[str, Any] = {"mini_batch_size": 512, "entropy_lambda": 0.01}


@MODELS.register("amppo")
class AMPPO(PPO):
    """Attention Model with PPO and a critic of the same kind as the policy's encoder.

    Args:
        env: Environment.
        policy: Policy (default: :class:`AttentionModelPolicy` for the environment).
        critic: Critic (default: a copy of the policy's encoder with a value head).
        policy_kwargs: Arguments of the default policy.
        critic_kwargs: Arguments of the default critic.
        kwargs: See :class:`PPO`; `mini_batch_size` is 512 and `entropy_lambda` 0.01 by default, as
            in the RL4CO paper.
    """

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        critic: CriticNetwork | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        critic_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(AttentionModelPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, critic, critic_kwargs, **{**PPO_DEFAULTS, **kwargs})
