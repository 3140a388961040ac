"""CVRP embeddings: coordinates and demand in, last node and free capacity as context."""

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


class CVRPInitEmbedding(nn.Module):
    """One linear map for the depot, one for customers (x, y, demand): state → `[B, N, D]`."""

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(3, embed_dim, linear_bias)
        self.init_embed_depot = nn.Linear(2, embed_dim, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings, depot first."""
        locs = coordinates(state, "cvrp")
        demand = state["demand"] / state["vehicle_capacity"]  # [B, N]
        customers = torch.cat([locs, demand.unsqueeze(-1)], -1)[:, 1:]  # [B, N - 1, 3]
        return torch.cat([self.init_embed_depot(locs[:, :1]), self.init_embed(customers)], 1)


class CVRPContext(ContextEmbedding):
    """Query from the last node and the free capacity: $q = W [h_{a_{t-1}}, 1 - \\text{used}]$."""

    state_keys = ("current_node", "used_capacity", "vehicle_capacity")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Free capacity as a fraction of the vehicle."""
        return 1.0 - state["used_capacity"] / state["vehicle_capacity"]


@EMBEDDINGS.register("cvrp")
def cvrp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the CVRP."""
    return EnvEmbeddings(
        init=CVRPInitEmbedding(config.embed_dim, config.linear_bias),
        context=CVRPContext(config.embed_dim),
    )
