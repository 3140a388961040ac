"""N2S: one order of pickups and deliveries taken elsewhere (Ma et al., 2022)."""

from rl4co.models.zoo.n2s.model import N2S
from rl4co.models.zoo.n2s.original import load_original_weights as load_original_weights
from rl4co.models.zoo.n2s.policy import N2SPolicy

__all__ = ["N2S", "N2SPolicy"]
