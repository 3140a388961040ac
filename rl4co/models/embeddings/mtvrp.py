"""MTVRP embeddings: all node attributes in; last node, loads, time and length as context."""

from __future__ import annotations

import math

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


class MTVRPInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot, one for customers: state → `[B, N, D]`.

    A customer is (x, y, linehaul, backhaul, opening, closing, service), with a time window of
    (0, 0) where there is none.
    """

    num_features = 5

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates, and what customers have besides."""
        locs = coordinates(state, "mtvrp")
        demands = torch.stack([state["demand_linehaul"], state["demand_backhaul"]], -1)
        demands = demands / state["vehicle_capacity"].unsqueeze(-1)  # [B, N, 2]
        windows = _finite(state["time_windows"])  # [B, N, 2]
        service = state["service_time"].unsqueeze(-1)  # [B, N, 1]
        return locs, demands, windows, service


class MTVRPContext(ContextEmbedding):
    """Query from the last node and six features of the route.

    These are the free capacity for linehauls and for backhauls, the time, the length of the route,
    whether it is open, and the length that is left (0 without a limit).
    """

    state_keys = (
        "current_node",
        "used_capacity_linehaul",
        "used_capacity_backhaul",
        "vehicle_capacity",
        "current_time",
        "current_route_length",
        "open_route",
        "distance_limit",
    )

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=6)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """The six features `[B, Q, 6]`."""
        length = state["current_route_length"]
        loads = torch.cat([state["used_capacity_linehaul"], state["used_capacity_backhaul"]], -1)
        return torch.cat(
            [
                1.0 - loads / state["vehicle_capacity"],  # [B, Q, 2]
                state["current_time"],
                length,
                state["open_route"].to(length.dtype),
                _finite(state["distance_limit"] - length),
            ],
            -1,
        )


def _finite(limits: Tensor) -> Tensor:
    """Zero instead of infinity, which means no limit."""
    return torch.nan_to_num(limits, nan=math.nan, posinf=0.0)


@EMBEDDINGS.register("mtvrp")
def mtvrp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the MTVRP."""
    return EnvEmbeddings(
        init=MTVRPInitEmbedding(config.embed_dim, config.linear_bias),
        context=MTVRPContext(config.embed_dim),
    )
