"""mTSP embeddings: coordinates in; last node, agents and lengths of tours as context."""

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


class MTSPInitEmbedding(nn.Module):
    """One linear map for the depot, one for customers: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, linear_bias)
        self.init_embed_depot = nn.Linear(2, embed_dim, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings, depot first."""
        locs = coordinates(state, "mtsp")
        return torch.cat([self.init_embed_depot(locs[:, :1]), self.init_embed(locs[:, 1:])], 1)


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
