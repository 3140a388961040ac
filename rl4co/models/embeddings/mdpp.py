"""mDPP embeddings: coordinates and the distance from the nearest port in; no context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings._placement import NoContext, port_distances


class MDPPInitEmbedding(nn.Module):
    """Coordinates and distance to the nearest port, both embedded, then projected together.

    $$h = W [W_x (x, y), \\; W_d \\, \\min_p d_p]$$

    Shapes:
        state → `[B, N, D]`
    """

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, linear_bias)
        self.init_embed_probe_distance = nn.Linear(1, embed_dim, linear_bias)
        self.project_out = nn.Linear(2 * embed_dim, embed_dim, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        distance = self.init_embed_probe_distance(port_distances(state))
        return self.project_out(torch.cat([self.init_embed(state["locs"]), distance], -1))


@EMBEDDINGS.register("mdpp")
def mdpp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the mDPP."""
    return EnvEmbeddings(
        init=MDPPInitEmbedding(config.embed_dim, config.linear_bias), context=NoContext()
    )
