"""mTSP embeddings: coordinates in; last node, agents and lengths of tours as context."""

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


class MTSPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers: state → `[B, N, D]`."""

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates alone."""
        return (coordinates(state, "mtsp"),)


class MTSPContext(ContextEmbedding):
    """Query from the last node and four features of the tours.

    $$q = W [h_{a_{t-1}}, f_t]$$

    with $f_t$: agents that have not returned yet, length of the current tour, length of the longest
    tour that has ended, distance from the depot.
    """

    state_keys = (
        "current_node",
        "num_agents",
        "agent_idx",
        "current_length",
        "max_subtour_length",
        "way_home",
    )

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=4)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Remaining agents, current length, longest tour, way home: `[B, Q, 4]`."""
        lengths = state["current_length"], state["max_subtour_length"], state["way_home"]
        agents = (state["num_agents"] - state["agent_idx"]).to(lengths[0].dtype)
        return torch.stack([agents, *lengths], -1)


@EMBEDDINGS.register("mtsp")
def mtsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the mTSP."""
    return EnvEmbeddings(
        init=MTSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=MTSPContext(config.embed_dim),
    )
