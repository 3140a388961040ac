"""DACT: 2-opt for tours (Ma et al., 2021)."""

from rl4co.models.zoo.dact.model import DACT
from rl4co.models.zoo.dact.original import load_original_weights as load_original_weights
from rl4co.models.zoo.dact.policy import DACTPolicy

__all__ = ["DACT", "DACTPolicy"]
