"""NeuOpt: flexible k-opt for tours (Ma et al., 2023)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.neuopt.model import NeuOpt
from rl4co.models.zoo.neuopt.policy import NeuOptPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.neuopt import (
        load_original_weights as load_original_weights,
    )

__all__ = ["NeuOpt", "NeuOptPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.neuopt"},
)
