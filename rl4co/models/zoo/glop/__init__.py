"""GLOP (Ye et al., 2024)."""

from rl4co.models.zoo.glop.adapter import CVRPAdapter, PCTSPAdapter, TSPAdapter
from rl4co.models.zoo.glop.model import GLOP
from rl4co.models.zoo.glop.policy import GLOPPolicy
from rl4co.models.zoo.glop.reviser import (
    load_original_weights as load_original_weights,
)
from rl4co.models.zoo.glop.reviser import (
    make_reviser_policy,
)
from rl4co.models.zoo.glop.revision import Reviser, revise_tours

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
