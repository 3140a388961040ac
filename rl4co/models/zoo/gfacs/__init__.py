"""GFACS (Kim et al., 2025)."""

from rl4co.models.zoo.gfacs.model import GFACS
from rl4co.models.zoo.gfacs.original import load_original_weights as load_original_weights
from rl4co.models.zoo.gfacs.policy import GFACSPolicy

__all__ = ["GFACS", "GFACSPolicy"]
