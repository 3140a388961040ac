"""PDP embeddings: coordinates, of a pickup also its delivery's, in; last node as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    Kind,
    LinearInitEmbedding,
    coordinates,
)


class PDPInitEmbedding(LinearInitEmbedding):
    """One linear map each for depots, pickups and deliveries: state → `[B, N, D]`.

    The features of a pickup are its coordinates and those of its delivery (Li et al., 2021,
    https://arxiv.org/abs/2110.02634).
    """

    problem = "pdp"

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed_depot = nn.Linear(2, embed_dim, linear_bias)
        self.init_embed_pick = nn.Linear(4, embed_dim, linear_bias)
        self.init_embed_delivery = nn.Linear(2, embed_dim, linear_bias)

    def num_depots(self, state: Mapping[str, Tensor]) -> int:
        """How many of the first nodes are depots."""
        return 1

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """Depots, pickups, deliveries."""
        locs, depots = coordinates(state, self.problem), self.num_depots(state)
        pickups, deliveries = locs[:, depots:].chunk(2, dim=1)  # [B, n / 2, 2] each
        return [
            (locs[:, :depots], self.init_embed_depot),
            (torch.cat([pickups, deliveries], -1), self.init_embed_pick),
            (deliveries, self.init_embed_delivery),
        ]


class PDPContext(ContextEmbedding):
    """Query from the last node alone: $q = W h_{a_{t-1}}$."""

    state_keys = ("current_node",)

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1)


@EMBEDDINGS.register("pdp")
def pdp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the PDP."""
    return EnvEmbeddings(
        init=PDPInitEmbedding(config.embed_dim, config.linear_bias),
        context=PDPContext(config.embed_dim),
    )
