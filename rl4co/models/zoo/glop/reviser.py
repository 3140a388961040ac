"""Revisers: Attention Models for pieces of tours.

Original code: henry-yeh/GLOP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rl4co.models.embeddings.tsp import TSPContext, TSPInitEmbedding
from rl4co.models.zoo.am import AttentionModelPolicy


class OriginalContext(TSPContext):
    """Query from the piece's first node, in both directions, and the current one.

    So going forwards the original revisers do not see where the path has to end.
    """

    state_keys = ("anchor", "current_node", "i")

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """First node of the piece, and current node."""
        return state["anchor"], state["current_node"]


class DestinationContext(TSPContext):
    """Query from the node where the path has to end, and the current one."""

    state_keys = ("last_node", "current_node", "i")

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Last node and current node."""
        return state["last_node"], state["current_node"]


def make_reviser_policy(
    embed_dim: int = 128,
    num_encoder_layers: int = 6,
    num_heads: int = 8,
    feedforward_hidden: int = 512,
    destination: bool = True,
    **kwargs: Any,
) -> AttentionModelPolicy:
    """An Attention Model for the SHPP.

    Args:
        embed_dim: Embedding size.
        num_encoder_layers: Layers of the encoder.
        num_heads: Attention heads.
        feedforward_hidden: Hidden units of the feed-forward layers.
        destination: Whether marks on both ends and a context with the destination are used, the
            library's own embeddings; otherwise the original ones.
        kwargs: Further arguments of the policy.
    """
    parts: dict[str, Any] = {}
    if not destination:
        parts = {
            "init_embedding": TSPInitEmbedding(embed_dim),
            "context_embedding": OriginalContext(embed_dim),
        }
    return AttentionModelPolicy(
        env_name="shpp",
        embed_dim=embed_dim,
        num_encoder_layers=num_encoder_layers,
        num_heads=num_heads,
        feedforward_hidden=feedforward_hidden,
        **parts,
        **kwargs,
    )
