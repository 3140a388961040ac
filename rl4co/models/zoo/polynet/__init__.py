"""PolyNet (Hottung et al., 2025)."""

from rl4co.models.zoo.polynet.decoder import PolyNetDecoder
from rl4co.models.zoo.polynet.model import PolyNet
from rl4co.models.zoo.polynet.policy import PolyNetPolicy

__all__ = ["PolyNet", "PolyNetDecoder", "PolyNetPolicy"]
