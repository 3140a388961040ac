"""CVRP embeddings: coordinates and demand in, last node and free capacity as context."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from rl4co import kernels
from rl4co.core.layouts import per_node
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    DepotInitEmbedding,
    EdgeEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)


class CVRPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers (x, y, demand): state → `[B, N, D]`."""

    num_features = 1

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates and demands, as shares of the vehicle."""
        locs = coordinates(state, "cvrp")
        demand = per_node(state, "demand", locs.shape[1]) / state["vehicle_capacity"]  # [B, N]
        return locs, demand.unsqueeze(-1)


@kernels.standard
class CVRPContext(ContextEmbedding):
    """Query from the last node and the free capacity: $q = W [h_{a_{t-1}}, 1 - \\text{used}]$."""

    state_keys = ("current_node", "used_capacity", "vehicle_capacity")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Free capacity as a fraction of the vehicle."""
        return 1.0 - state["used_capacity"] / state["vehicle_capacity"]


class CVRPEdgeEmbedding(EdgeEmbedding):
    """Nearest customers and the depot with their distances; nodes know their demand only.

    With the option `self_loops` a customer is its own nearest neighbour, as in DeepACO.
    """

    num_node_features = 1
    has_hub = True
    defaults = {"self_loops": False}

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Demands as shares of the vehicle `[B, N, 1]`."""
        demand = per_node(state, "demand", coordinates(state, "cvrp").shape[1])
        return (demand / state["vehicle_capacity"]).unsqueeze(-1)


@EMBEDDINGS.register("cvrp")
def cvrp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the CVRP."""
    return EnvEmbeddings(
        init=CVRPInitEmbedding(config.embed_dim, config.linear_bias),
        context=CVRPContext(config.embed_dim),
        edge=CVRPEdgeEmbedding,
    )
