"""MVMoE (Zhou et al., 2024)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.mvmoe.model import MVMoE_AM, MVMoE_POMO

if TYPE_CHECKING:
    from rl4co.models.original_weights.mtvrp import (
        load_original_weights as load_original_weights,
    )

__all__ = ["MVMoE_AM", "MVMoE_POMO"]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.mtvrp"},
)
