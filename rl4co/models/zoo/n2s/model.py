"""Neural Neighborhood Search with n-step PPO (Ma et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.n_step_ppo import n_step_PPO
from rl4co.models.zoo.n2s.policy import N2SPolicy

#: Settings of the original code for 50 nodes, where they differ from those of n-step PPO.
DEFAULTS: Mapping[str, Any] = {
    "n_step": 5,
    "T_train": 250,
    "lr_policy": 8e-5,
    "lr_critic": 2e-5,
    "max_grad_norm": 0.15,
    "curriculum": "linear",
    "CL_scalar": 1.5,
    "CL_best": False,
    "batch_size": 600,
}


@MODELS.register("n2s")
class N2S(n_step_PPO):
    """N2S with n-step PPO, for pickups and deliveries.

    Args:
        env: Environment `pdp_ruin_repair`.
        policy: Policy (default: :class:`N2SPolicy`).
        critic: Critic that replaces the policy's own.
        policy_kwargs: Arguments of the default policy.
        kwargs: See :class:`n_step_PPO`; defaults are those of the original code for 50 nodes.
    """

    supported_envs = ("pdp_ruin_repair",)
    support_reason = "its moves take one order elsewhere"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        critic: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(N2SPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, critic, **{**DEFAULTS, **kwargs})
