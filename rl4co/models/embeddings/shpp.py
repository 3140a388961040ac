"""SHPP embeddings: coordinates with marked ends in, current and last node as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.layouts import node_index
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)


class SHPPInitEmbedding(nn.Module):
    """Linear map of the coordinates, plus a learned mark on both ends: state → `[B, N, D]`.

    Without the marks no network could tell where the path has to end.
    """

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, linear_bias)
        self.marks = nn.Parameter(torch.empty(2, embed_dim).uniform_(-1, 1))  # start, end

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        nodes = self.init_embed(coordinates(state, "shpp"))  # [B, N, D]
        start, end = nodes[:, :1] + self.marks[0], nodes[:, -1:] + self.marks[1]
        if nodes.shape[1] == 1:  # one node is both ends
            return start + self.marks[1]
        return torch.cat([start, nodes[:, 1:-1], end], 1)


class SHPPContext(ContextEmbedding):
    """Query from the current node and the last one: $q = W [h_{a_{t-1}}, h_N]$."""

    state_keys = ("current_node", "last_node")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=2)

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Current node and last node."""
        return node_index(state, "current_node"), node_index(state, "last_node")


@EMBEDDINGS.register("shpp")
def shpp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the SHPP."""
    return EnvEmbeddings(
        init=SHPPInitEmbedding(config.embed_dim, config.linear_bias),
        context=SHPPContext(config.embed_dim),
    )
