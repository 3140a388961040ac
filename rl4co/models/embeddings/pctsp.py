"""PCTSP embeddings: coordinates, prize and penalty in, last node and missing prize as context."""

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


class PCTSPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers (x, y, expected prize, penalty).

    Shapes:
        state → `[B, N, D]`
    """

    num_features = 2

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates, expected prizes and penalties."""
        locs = coordinates(state, "pctsp")
        return locs, _values(state, locs.shape[1])


class PCTSPContext(ContextEmbedding):
    """Query from the last node and the prize still to collect.

    $$q = W [h_{a_{t-1}}, \\max(0, P - \\textstyle\\sum_{s < t} p_{a_s})]$$
    """

    state_keys = ("current_node", "cur_total_prize", "prize_required")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Prize that is missing."""
        required = per_solution(state, "prize_required")
        return (required - per_solution(state, "cur_total_prize")).clamp_min(0.0)


class PCTSPEdgeEmbedding(EdgeEmbedding):
    """Nearest customers and the depot with their distances."""

    has_hub = True

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Expected prize and penalty: `[B, N, 2]`."""
        return _values(state, coordinates(state, "pctsp").shape[1])


def _values(state: Mapping[str, Tensor], num_nodes: int) -> Tensor:
    """Expected prize and penalty `[B, N, 2]`."""
    return torch.stack([per_node(state, k, num_nodes) for k in ("expected_prize", "penalty")], -1)


@EMBEDDINGS.register("pctsp")
def pctsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the PCTSP."""
    return EnvEmbeddings(
        init=PCTSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=PCTSPContext(config.embed_dim),
        edge=PCTSPEdgeEmbedding,
    )
