"""`ImprovementMethod`: what DACT, N2S and NeuOpt are, apart from their policies and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch import nn

from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.n_step_ppo import n_step_PPO


class ImprovementMethod(n_step_PPO):
    """An improvement policy with n-step PPO; a method is a subclass with the attributes below.

    Args:
        env: Environment.
        policy: Policy (default: that of the method).
        critic: Critic that replaces the policy's default.
        policy_kwargs: Arguments of the default policy.
        kwargs: See :class:`n_step_PPO`; defaults are those of the method.
    """

    #: Class of the method's policy.
    policy_class: ClassVar[Callable[..., nn.Module]]
    #: Settings of the method, where they differ from those of n-step PPO.
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        critic: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(self.policy_class, env, policy, policy_kwargs)
        super().__init__(env, policy, critic, **{**self.defaults, **kwargs})
