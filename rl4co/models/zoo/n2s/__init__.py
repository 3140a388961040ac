"""N2S: one order of pickups and deliveries taken elsewhere (Ma et al., 2022)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.n2s.model import N2S
from rl4co.models.zoo.n2s.policy import N2SPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.n2s import (
        load_original_weights as load_original_weights,
    )

__all__ = ["N2S", "N2SPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.n2s"},
)
