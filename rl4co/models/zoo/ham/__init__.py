"""Heterogeneous Attention Model (Li et al., 2021)."""

from rl4co.models.zoo.ham.model import HeterogeneousAttentionModel
from rl4co.models.zoo.ham.policy import HeterogeneousAttentionModelPolicy

__all__ = ["HeterogeneousAttentionModel", "HeterogeneousAttentionModelPolicy"]
