"""DPP embeddings: coordinates and the distance from the port in; no context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings._placement import NoContext, port_distances


class DPPInitEmbedding(nn.Module):
    """Half of the embedding from the coordinates, half from the distance to the port.

    $$h = [W_x (x, y), \\; W_d \\, d]$$

    Shapes:
        state → `[B, N, D]`
    """

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim // 2, linear_bias)
        self.init_embed_probe = nn.Linear(1, embed_dim - embed_dim // 2, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        parts = self.init_embed(state["locs"]), self.init_embed_probe(port_distances(state))
        return torch.cat(parts, -1)


@EMBEDDINGS.register("dpp")
def dpp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the DPP."""
    return EnvEmbeddings(
        init=DPPInitEmbedding(config.embed_dim, config.linear_bias), context=NoContext()
    )
