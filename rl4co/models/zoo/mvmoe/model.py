"""MVMoE: a routing solver with mixtures of experts (Zhou et al., 2024).

Paper: https://arxiv.org/abs/2405.01029. Original code: RoyalSkye/Routing-MVMoE. The experts are in
:mod:`rl4co.models.nn.moe` (encoder) and :mod:`rl4co.models.zoo.am.experts` (decoder).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from torch import nn

from rl4co.core.errors import ConfigError
from rl4co.core.registry import MODELS
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.rl.baselines import REINFORCEBaseline
from rl4co.models.zoo.am import AttentionModel
from rl4co.models.zoo.pomo import POMO

ExpertSettings: TypeAlias = Mapping[str, Mapping[str, Any] | None]

#: MVMoE/4E-L of the paper: four experts, two per token, hierarchical gating in the decoder.
DEFAULT_EXPERTS: ExpertSettings = {
    "encoder": {"num_experts": 4, "k": 2, "noisy_gating": True},
    "decoder": {"num_experts": 4, "k": 2, "noisy_gating": True, "light_version": True},
}

_TRAIN_METRICS = ("loss", "reward", "bl_val", "auxiliary_loss")


@MODELS.register("mvmoe")
class MVMoE_POMO(POMO):
    """POMO whose Attention Model has mixtures of experts.

    Args:
        policy: Policy (default: POMO's with experts).
        moe_kwargs: Experts of the default policy's "encoder" and "decoder", see
            :class:`rl4co.models.nn.moe.MoEConfig` (default: four experts, two per token, with
            hierarchical gating in the decoder).
        kwargs: Further arguments, and those not listed here: see :class:`POMO`.
    """

    default_metrics = {**POMO.default_metrics, "train": _TRAIN_METRICS}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        moe_kwargs: ExpertSettings | None = None,
        **kwargs: Any,
    ) -> None:
        policy_kwargs = with_experts(policy, policy_kwargs, moe_kwargs)
        super().__init__(env, policy, policy_kwargs, **kwargs)


class MVMoE_AM(AttentionModel):
    """Attention Model with mixtures of experts and the rollout baseline.

    Args:
        policy: Policy (default: the Attention Model's with experts).
        moe_kwargs: Experts of the default policy, see :class:`MVMoE_POMO`.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModel`.
    """

    default_metrics = {"train": _TRAIN_METRICS}

    def __init__(
        self,
        env: RL4COEnvBase,
        policy: nn.Module | None = None,
        baseline: REINFORCEBaseline | str = "rollout",
        policy_kwargs: Mapping[str, Any] | None = None,
        *,
        moe_kwargs: ExpertSettings | None = None,
        **kwargs: Any,
    ) -> None:
        policy_kwargs = with_experts(policy, policy_kwargs, moe_kwargs)
        super().__init__(env, policy, baseline, policy_kwargs, **kwargs)


def with_experts(
    policy: nn.Module | None,
    policy_kwargs: Mapping[str, Any] | None,
    moe_kwargs: ExpertSettings | None,
) -> Mapping[str, Any] | None:
    """Arguments of the default policy with experts; what the caller says wins."""
    if policy is not None:
        if moe_kwargs:
            raise ConfigError("expected policy or moe_kwargs, got both; give one of them")
        return policy_kwargs
    settings = policy_kwargs or {}
    if moe_kwargs and "moe_kwargs" in settings:
        raise ConfigError("expected moe_kwargs once, got it in policy_kwargs, too")
    return {"moe_kwargs": moe_kwargs or DEFAULT_EXPERTS, **settings}
