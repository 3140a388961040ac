"""Policy of the Heterogeneous Attention Model (Li et al., 2021).

Paper: https://arxiv.org/abs/2110.02634. Original code: Demon0312/Heterogeneous-Attentions-PDP-DRL.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from rl4co.models.zoo.am import AttentionModelPolicy
from rl4co.models.zoo.ham.encoder import HeterogeneousAttentionModelEncoder


class HeterogeneousAttentionModelPolicy(AttentionModelPolicy):
    """Attention Model whose encoder tells pickups, deliveries and partners apart.

    Args:
        env_name: Environment whose embeddings to use; its customers are pickups, then deliveries.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | None = None,
        env_name: str = "pdp",
        init_embedding: nn.Module | None = None,
        embed_dim: int = 128,
        num_encoder_layers: int = 3,
        num_heads: int = 8,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        attention_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        if encoder is None:
            encoder = HeterogeneousAttentionModelEncoder(
                embed_dim=embed_dim,
                init_embedding=init_embedding,
                env_name=env_name,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
                bias=attention_bias,
            )
        super().__init__(
            encoder, env_name=env_name, embed_dim=embed_dim, num_heads=num_heads, **kwargs
        )
