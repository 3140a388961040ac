"""ReLD: a light decoder that holds on larger instances (Huang et al., 2025).

Paper: https://openreview.net/forum?id=4pRwkYpa2u. Original code: ziweileonhuang/reld-nco.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.zoo.pomo import POMO
from rl4co.models.zoo.reld.policy import ReLDPolicy


@MODELS.register("reld")
class ReLD(POMO):
    """ReLD's policy, trained as POMO.

    Args:
        env: Environment. Instances of many sizes come from a generator such as
            :class:`~rl4co.envs.mixed_sizes.MixedSizeGenerator`.
        policy: Policy (default: :class:`ReLDPolicy`).
        policy_kwargs: Arguments of the default policy.
        kwargs: See :class:`POMO`.
    """

    supported_envs = ("cvrp", "tsp")
    support_reason = "its decoder needs the last node and the distances from it"

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        policy = self.default_policy(ReLDPolicy, env, policy, policy_kwargs)
        super().__init__(env, policy, **kwargs)
