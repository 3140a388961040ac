"""FLP embeddings: coordinates in; badly served customers, and the gain of each location."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.core.gains import location_gains
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    EmbeddingConfig,
    EnvEmbeddings,
    Kind,
    LinearInitEmbedding,
    coordinates,
)
from rl4co.models.embeddings._selection import GainEmbedding, SelectionContext
from rl4co.models.nn.graph import Neighbors

#: Neighbours of a location in the graph.
NUM_NEIGHBORS = 10


class FLPInitEmbedding(LinearInitEmbedding):
    """Linear map of the coordinates: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(2, embed_dim, linear_bias)

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """All locations are alike."""
        return [(coordinates(state, "flp"), self.init_embed)]


class FLPContext(SelectionContext):
    """Query from customers, weighted by their distance from the nearest facility."""

    state_keys = ("distances", "chosen", "i", "to_choose")

    def uncovered(self, state: Mapping[str, Tensor]) -> Tensor:
        """Distances from the nearest facility."""
        return state["distances"].clamp_min(0)

    def num_to_choose(self, state: Mapping[str, Tensor]) -> Tensor:
        """Facilities."""
        return state["to_choose"].unsqueeze(-1)


class FLPGainEmbedding(GainEmbedding):
    """Keys and values change with what a facility at each location would save."""

    state_keys = ("orig_distances", "distances")

    def gains(self, state: Mapping[str, Tensor]) -> Tensor:
        """Savings of all customers."""
        # All states of an instance have the same costs: [B, Q, N, N] -> [B, N, N]
        return location_gains(state["distances"], state["orig_distances"][:, 0])


class FLPNeighbors(nn.Module):
    """The nearest locations of each location, with their distances as shares of the largest.

    Args:
        num_neighbors: How many; all others where there are fewer.
    """

    is_bipartite = False

    def __init__(self, num_neighbors: int = NUM_NEIGHBORS) -> None:
        super().__init__()
        self.num_neighbors = num_neighbors

    def forward(self, state: Mapping[str, Tensor]) -> Neighbors:
        """The graph of a batch of instances."""
        matrix = state["orig_distances"]  # [B, N, N]
        size = matrix.shape[-1]
        largest = matrix.flatten(1).amax(-1)[:, None, None].clamp_min(1e-12)  # [B, 1, 1]
        others = matrix / largest
        others.diagonal(dim1=-2, dim2=-1).fill_(float("inf"))
        count = max(1, min(self.num_neighbors, size - 1))
        length, index = others.topk(count, dim=-1, largest=False)  # [B, N, K]
        if size == 1:  # only itself
            return Neighbors(index.new_full(index.shape, -1), length.new_zeros(*length.shape, 1))
        return Neighbors(index, length.unsqueeze(-1))


@EMBEDDINGS.register("flp")
def flp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init, context, dynamic and edge embeddings of the FLP."""
    return EnvEmbeddings(
        init=FLPInitEmbedding(config.embed_dim, config.linear_bias),
        context=FLPContext(config.embed_dim),
        dynamic=FLPGainEmbedding(config.embed_dim),
        edge=lambda _: FLPNeighbors(),
    )
