"""GLOP (Ye et al., 2024)."""

from typing import TYPE_CHECKING

from rl4co.core.lazy import lazy_attributes
from rl4co.models.zoo.glop.adapter import CVRPAdapter, PCTSPAdapter, TSPAdapter
from rl4co.models.zoo.glop.model import GLOP
from rl4co.models.zoo.glop.policy import GLOPPolicy
from rl4co.models.zoo.glop.reviser import (
    make_reviser_policy,
)
from rl4co.models.zoo.glop.revision import Reviser, revise_tours

if TYPE_CHECKING:
    from rl4co.models.original_weights.glop import (
        load_original_weights as load_original_weights,
    )

__all__ = [
    "GLOP",
    "CVRPAdapter",
    "GLOPPolicy",
    "PCTSPAdapter",
    "Reviser",
    "TSPAdapter",
    "make_reviser_policy",
    "revise_tours",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    eager=__all__,
    modules={"load_original_weights": "rl4co.models.original_weights.glop"},
)
