"""POMO (Kwon et al., 2020)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.pomo.model import POMO

if TYPE_CHECKING:
    from rl4co.models.original_weights.pomo import (
        load_original_weights as load_original_weights,
    )

__all__ = ["POMO"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.pomo"},
)
