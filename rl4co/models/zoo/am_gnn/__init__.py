"""Attention Model with a graph network as encoder."""

from rl4co.models.zoo.am_gnn.encoder import GNNEncoder
from rl4co.models.zoo.am_gnn.model import GNNAttentionModel
from rl4co.models.zoo.am_gnn.policy import GNNAttentionModelPolicy

__all__ = ["GNNAttentionModel", "GNNAttentionModelPolicy", "GNNEncoder"]
