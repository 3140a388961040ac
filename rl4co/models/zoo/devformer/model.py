"""DevFormer with REINFORCE (Kim et al., 2023; Berto et al., 2025)."""

from __future__ import annotations

from rl4co.core.registry import MODELS
from rl4co.models.zoo.am import AttentionModel
from rl4co.models.zoo.devformer.policy import DevFormerPolicy


@MODELS.register("devformer")
class DevFormer(AttentionModel):
    """DevFormer trained online with REINFORCE, for the placement of decaps.

    Arguments are those of :class:`AttentionModel`. With PPO: `PPO(env, DevFormerPolicy(env.name))`.
    """

    policy_class = DevFormerPolicy
    supported_envs = ("dpp", "mdpp")
    support_reason = "it embeds probing ports, keep-outs and decaps"
