"""Policy of the Attention Model with a graph network as encoder."""

from __future__ import annotations

from typing import Any

from rl4co.models.zoo.am import AttentionModelPolicy
from rl4co.models.zoo.am_gnn.encoder import GNNEncoder


class GNNAttentionModelPolicy(AttentionModelPolicy):
    """The Attention Model's decoder on top of a network on the graph of the instance.

    Args:
        env_name: Environment, one with a graph.
        network: "mlp", "gcn" or "gat"; for bipartite graphs "mlp", "sage" or "gen".
        num_encoder_layers: Layers of the network.
        num_heads: Attention heads of the decoder, and of "gat".
        feedforward_hidden: Width of the hidden layers of "mlp".
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        env_name: str = "flp",
        network: str = "mlp",
        embed_dim: int = 128,
        num_encoder_layers: int = 3,
        num_heads: int = 8,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            encoder=GNNEncoder(
                env_name, network, embed_dim, num_encoder_layers, normalization,
                feedforward_hidden, num_heads,
            ),
            embed_dim=embed_dim,
            num_heads=num_heads,
            env_name=env_name,
            **kwargs,
        )  # fmt: skip
