"""NeuOpt: flexible k-opt for tours (Ma et al., 2023)."""

from rl4co.models.zoo.neuopt.model import NeuOpt
from rl4co.models.zoo.neuopt.original import load_original_weights as load_original_weights
from rl4co.models.zoo.neuopt.policy import NeuOptPolicy

__all__ = ["NeuOpt", "NeuOptPolicy"]
