"""Multi-Decoder Attention Model (Xin et al., 2021)."""

from rl4co.models.zoo.mdam.decoder import MDAMDecoder
from rl4co.models.zoo.mdam.encoder import MDAMEncoder
from rl4co.models.zoo.mdam.model import MDAM
from rl4co.models.zoo.mdam.policy import MDAMPolicy

__all__ = ["MDAM", "MDAMDecoder", "MDAMEncoder", "MDAMPolicy"]
