"""NeuOpt with n-step PPO (Ma et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.n_step_ppo import n_step_PPO
from rl4co.models.zoo.neuopt.policy import NeuOptPolicy

#: Settings of the original code for 50 nodes, where they differ from those of n-step PPO.
DEFAULTS: Mapping[str, Any] = {
    "n_step": 4,
    "T_train": 200,
    "lr_policy": 8e-5,
    "lr_critic": 2e-5,
    "max_grad_norm": 0.05,
    "curriculum": "linear",
    "CL_scalar": 0.5,
    "CL_best": True,
    "batch_size": 512,
}


@MODELS.register("neuopt")
class NeuOpt(n_step_PPO):
    """NeuOpt with n-step PPO, for the TSP with flexible k-opt.

    Args:
        env: Environment `tsp_kopt` with `k_max` above 2 (4 in the paper).
        policy: Policy (default: :class:`NeuOptPolicy`).
        critic: Critic that replaces the policy's own.
        policy_kwargs: Arguments of the default policy.
        kwargs: See :class:`n_step_PPO`; defaults are those of the original code for 50 nodes.
    """

    supported_envs = ("tsp_kopt",)
    support_reason = "its moves are those of flexible k-opt"
    env_params = {"k_max": 4}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        critic: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(NeuOptPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, critic, **{**DEFAULTS, **kwargs})
