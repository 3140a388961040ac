"""ReLD (Huang et al., 2025)."""

from rl4co.models.zoo.reld.model import ReLD
from rl4co.models.zoo.reld.policy import ReLDPolicy

__all__ = ["ReLD", "ReLDPolicy"]
