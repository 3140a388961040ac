"""Heterogeneous Attention Model with REINFORCE (Li et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import REINFORCEBaseline
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.ham.policy import HeterogeneousAttentionModelPolicy


@MODELS.register("ham")
class HeterogeneousAttentionModel(REINFORCE):
    """Heterogeneous Attention Model with REINFORCE.

    Args:
        env: Environment with pickups and deliveries.
        policy: Policy (default: :class:`HeterogeneousAttentionModelPolicy`).
        baseline: Baseline or its name.
        policy_kwargs: Arguments of the default policy.
        baseline_kwargs: Arguments of a baseline given by name.
        kwargs: See :class:`REINFORCE`.
    """

    supported_envs = ("pdp", "mdcpdp")
    support_reason = "its encoder is made of pairs of pickup and delivery"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        baseline: REINFORCEBaseline | str = "rollout",
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(HeterogeneousAttentionModelPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, baseline_kwargs, **kwargs)
