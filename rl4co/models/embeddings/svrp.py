"""SVRP embeddings: coordinates and skill in, last node and technician as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    DepotInitEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)


class SVRPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers (x, y, skill): state → `[B, N, D]`."""

    num_features = 1

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates, and skills as shares of the best technician's."""
        locs = coordinates(state, "svrp")
        skills = state["skills"] / state["techs"][:, -1:]  # [B, N]
        return locs, skills.unsqueeze(-1)


class SVRPContext(ContextEmbedding):
    """Query from the last node and the technician on the way, with skill s and cost c.

    $$q = W [h_{a_{t-1}}, s / s_{\\max}, c / c_{\\max}]$$
    """

    state_keys = ("current_node", "current_tech", "techs", "tech_costs")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=2)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Skill and cost of the technician as shares of the largest `[B, Q, 2]`."""
        tech = state["current_tech"]  # [B, Q]
        technicians = torch.stack([state["techs"], state["tech_costs"]], -2)  # [B, Q, 2, t]
        index = tech[..., None, None].expand(*tech.shape, 2, 1)
        return technicians.gather(-1, index).squeeze(-1) / technicians.amax(-1)  # [B, Q, 2]


@EMBEDDINGS.register("svrp")
def svrp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the SVRP."""
    return EnvEmbeddings(
        init=SVRPInitEmbedding(config.embed_dim, config.linear_bias),
        context=SVRPContext(config.embed_dim),
    )
