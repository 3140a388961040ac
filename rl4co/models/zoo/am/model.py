"""Attention Model trained with REINFORCE and the rollout baseline (Kool et al., 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import REINFORCEBaseline
from rl4co.models.rl.reinforce import REINFORCE
from rl4co.models.zoo.am.policy import AttentionModelPolicy


@MODELS.register("am")
class AttentionModel(REINFORCE):
    """Attention Model with REINFORCE; a subclass names another policy to train in the same way.

    Args:
        policy: Policy (default: the `policy_class` for the environment).
        baseline: Baseline or its name.
        policy_kwargs: Arguments of the default policy.
        kwargs: Further arguments, and those not listed here: see :class:`REINFORCE`.
    """

    policy_class: ClassVar[type[nn.Module]] = AttentionModelPolicy

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        baseline: REINFORCEBaseline | str = "rollout",
        policy_kwargs: Mapping[str, Any] | None = None,
        baseline_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(self.policy_class, env, policy, policy_kwargs)
        super().__init__(env, policy, baseline, baseline_kwargs, **kwargs)
