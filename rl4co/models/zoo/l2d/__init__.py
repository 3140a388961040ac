"""Learning to Dispatch and its relatives: policies for job shops (Zhang et al., 2020)."""

from rl4co.models.zoo.l2d.actors import MLPActor, PointerActor
from rl4co.models.zoo.l2d.decoder import L2DDecoder
from rl4co.models.zoo.l2d.encoder import GCNEncoder, HGNNEncoder, MatNetShopEncoder
from rl4co.models.zoo.l2d.model import L2DModel, L2DPPOModel
from rl4co.models.zoo.l2d.policy import L2DAttnPolicy, L2DPolicy, L2DPolicy4PPO

__all__ = [
    "GCNEncoder",
    "HGNNEncoder",
    "L2DAttnPolicy",
    "L2DDecoder",
    "L2DModel",
    "L2DPPOModel",
    "L2DPolicy",
    "L2DPolicy4PPO",
    "MLPActor",
    "MatNetShopEncoder",
    "PointerActor",
]
