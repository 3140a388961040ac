"""PCTSP embeddings: coordinates, prize and penalty in, last node and missing prize as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)


class PCTSPInitEmbedding(nn.Module):
    """One linear map for the depot, one for customers (x, y, expected prize, penalty).

    Shapes:
        state → `[B, N, D]`
    """

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(4, embed_dim, linear_bias)
        self.init_embed_depot = nn.Linear(2, embed_dim, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings, depot first."""
        locs = coordinates(state, "pctsp")
        values = torch.stack([state["expected_prize"], state["penalty"]], -1)  # [B, N, 2]
        customers = torch.cat([locs, values], -1)[:, 1:]  # [B, N - 1, 4]
        return torch.cat([self.init_embed_depot(locs[:, :1]), self.init_embed(customers)], 1)


class PCTSPContext(ContextEmbedding):
    """Query from the last node and the prize still to collect.

    $$q = W [h_{a_{t-1}}, \\max(0, P - \\textstyle\\sum_{s < t} p_{a_s})]$$
    """

    state_keys = ("current_node", "cur_total_prize", "prize_required")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Prize that is missing."""
        return (state["prize_required"] - state["cur_total_prize"]).clamp_min(0.0)


@EMBEDDINGS.register("pctsp")
def pctsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the PCTSP."""
    return EnvEmbeddings(
        init=PCTSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=PCTSPContext(config.embed_dim),
    )
