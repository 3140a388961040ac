"""OP embeddings: coordinates and prize in, last node and length left as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.layouts import per_node, per_solution
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    DepotInitEmbedding,
    EdgeEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)

#: Kool et al. (2019) take the margin of their mask off the length left, whatever our mask's is.
LENGTH_MARGIN = 1e-6


class OPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers (x, y, prize): state → `[B, N, D]`."""

    num_features = 1

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates and prizes."""
        locs = coordinates(state, "op")
        return locs, per_node(state, "prize", locs.shape[1]).unsqueeze(-1)  # [B, N, 1]


class OPContext(ContextEmbedding):
    """Query from the last node and the length left: $q = W [h_{a_{t-1}}, L - \\epsilon - l_t]$."""

    state_keys = ("current_node", "tour_length", "max_length")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Length that is left for the rest of the tour."""
        limit = per_solution(state, "max_length") - LENGTH_MARGIN
        return limit - per_solution(state, "tour_length")


class OPEdgeEmbedding(EdgeEmbedding):
    """Nearest customers and the depot with their distances."""

    has_hub = True

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Distance to the depot and prize: `[B, N, 2]`."""
        locs = coordinates(state, "op")
        away = (locs - locs[:, :1]).norm(dim=-1)  # [B, N]
        return torch.stack([away, per_node(state, "prize", locs.shape[1])], -1)


@EMBEDDINGS.register("op")
def op_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the OP."""
    return EnvEmbeddings(
        init=OPInitEmbedding(config.embed_dim, config.linear_bias),
        context=OPContext(config.embed_dim),
        edge=OPEdgeEmbedding,
    )
