"""DACT: 2-opt for tours (Ma et al., 2021)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.dact.model import DACT
from rl4co.models.zoo.dact.policy import DACTPolicy

if TYPE_CHECKING:
    from rl4co.models.original_weights.dact import (
        load_original_weights as load_original_weights,
    )

__all__ = ["DACT", "DACTPolicy"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.dact"},
)
