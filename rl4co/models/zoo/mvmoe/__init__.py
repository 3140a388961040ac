"""MVMoE (Zhou et al., 2024)."""

from rl4co.models.zoo.mvmoe.model import MVMoE_AM, MVMoE_POMO

__all__ = ["MVMoE_AM", "MVMoE_POMO"]
