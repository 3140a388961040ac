"""GFACS (Kim et al., 2025)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.gfacs.model import GFACS
from rl4co.models.zoo.gfacs.policy import GFACSPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.gfacs import (
        load_original_weights as load_original_weights,
    )

__all__ = ["GFACS", "GFACSPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.gfacs"},
)
