"""CVRPTW embeddings: the CVRP's with time windows, service times and the time of day.

Lengths and times are divided by the time at which the depot closes, so that the unit of an
instance makes no difference and distances remain comparable with times.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.layouts import per_node, per_solution
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    DepotInitEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    coordinates,
)


class CVRPTWInitEmbedding(DepotInitEmbedding):
    """One linear map for the depot (x, y), one for customers: state → `[B, N, D]`.

    Customers have x, y, demand, both ends of the time window and the service time.
    """

    num_features = 4

    def features(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """Coordinates, demands, windows and service times, with the horizon as unit of time."""
        horizon = state["horizon"]  # [B, 1]
        locs = coordinates(state, "cvrptw") / horizon.unsqueeze(-1)  # [B, N, 2]
        demand = per_node(state, "demand", locs.shape[1]) / state["vehicle_capacity"]  # [B, N]
        windows = state["time_windows"] / horizon.unsqueeze(-1)  # [B, N, 2]
        service = per_node(state, "durations", locs.shape[1]) / horizon  # [B, N]
        return locs, demand.unsqueeze(-1), windows, service.unsqueeze(-1)


class CVRPTWContext(ContextEmbedding):
    """Query from the last node, the free capacity and the time.

    $$q = W [h_{a_{t-1}}, 1 - \\text{used}, \\tau]$$
    """

    state_keys = ("current_node", "used_capacity", "vehicle_capacity", "current_time", "horizon")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=2)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Free share of the vehicle and past share of the day `[B, Q, 2]`."""
        free = 1.0 - state["used_capacity"] / state["vehicle_capacity"]  # [B, Q, 1]
        return torch.cat([free, per_solution(state, "current_time") / state["horizon"]], -1)


@EMBEDDINGS.register("cvrptw")
def cvrptw_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the CVRPTW."""
    return EnvEmbeddings(
        init=CVRPTWInitEmbedding(config.embed_dim, config.linear_bias),
        context=CVRPTWContext(config.embed_dim),
    )
