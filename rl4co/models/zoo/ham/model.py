"""Heterogeneous Attention Model with REINFORCE (Li et al., 2021)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.zoo.am import AttentionModel
from rl4co.models.zoo.ham.policy import HeterogeneousAttentionModelPolicy


@MODELS.register("ham")
class HeterogeneousAttentionModel(AttentionModel):
    """Heterogeneous Attention Model with REINFORCE, for pickups and deliveries.

    Arguments are those of :class:`AttentionModel`.
    """

    policy_class = HeterogeneousAttentionModelPolicy
    supported_envs = ("pdp", "mdcpdp")
    support_reason = "its encoder is made of pairs of pickup and delivery"
