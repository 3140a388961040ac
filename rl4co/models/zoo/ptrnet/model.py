"""Pointer Network trained with REINFORCE (Bello et al., 2017)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.zoo.am import AttentionModel
from rl4co.models.zoo.ptrnet.policy import PointerNetworkPolicy


@MODELS.register("ptrnet")
class PointerNetwork(AttentionModel):
    """Pointer Network with REINFORCE; arguments are those of :class:`AttentionModel`."""

    policy_class = PointerNetworkPolicy
