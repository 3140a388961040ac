"""Pointer Network (Vinyals et al., 2015; Bello et al., 2017)."""

from rl4co.models.zoo.ptrnet.critic import PointerNetworkCritic
from rl4co.models.zoo.ptrnet.decoder import PointerNetworkDecoder
from rl4co.models.zoo.ptrnet.encoder import PointerNetworkEncoder
from rl4co.models.zoo.ptrnet.model import PointerNetwork
from rl4co.models.zoo.ptrnet.policy import PointerNetworkPolicy

__all__ = [
    "PointerNetwork",
    "PointerNetworkCritic",
    "PointerNetworkDecoder",
    "PointerNetworkEncoder",
    "PointerNetworkPolicy",
]
