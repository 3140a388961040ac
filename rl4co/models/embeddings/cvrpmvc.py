"""CVRPMVC embeddings: those of the CVRP, so that weights of one fit the other; edges by angle."""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Mapping

import torch

from torch import Tensor

from rl4co.core.graphs import CandidateGraph, check_degree
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EdgeEmbedding, EmbeddingConfig, EnvEmbeddings, coordinates
from rl4co.models.embeddings.cvrp import cvrp_embeddings


class CVRPMVCEdgeEmbedding(EdgeEmbedding):
    """Customers in similar directions from the depot, and the depot (after Ye et al., 2024).

    Around the depot each customer has edges to the next ones in both directions. An edge has its
    length and the cosine of its angle at the depot, a node its demand, distance and angle.
    """

    num_node_features = 3
    num_edge_features = 2
    has_hub = True
    share = 20

    def node_features(self, state: Mapping[str, Tensor]) -> Tensor:
        """Share of the vehicle, distance to the depot, and angle there in turns: `[B, N, 3]`."""
        locs = coordinates(state, "cvrpmvc")
        x, y = (locs - locs[:, :1]).unbind(-1)  # [B, N]
        demand = state["demand"] / state["vehicle_capacity"]
        return torch.stack([demand, torch.hypot(x, y), torch.atan2(y, x) / (2 * math.pi)], -1)

    def build_graph(self, state: Mapping[str, Tensor]) -> tuple[CandidateGraph, Tensor, Tensor]:
        """Neighbours by angle, with lengths and cosines as features."""
        locs = coordinates(state, "cvrpmvc")
        away = locs[:, 1:] - locs[:, :1]  # [B, n, 2]
        angle = torch.atan2(away[..., 1], away[..., 0])  # [B, n]
        customers = angle.shape[1]
        order = angle.argsort(-1)  # [B, n], around the depot
        place = order.argsort(-1)
        degree = self.degree(locs.shape[1])
        check_degree(degree, customers, has_hub=True)
        offsets = torch.arange(1, degree + 1, device=locs.device)
        # 1, -1, 2, -2, ...: both ways around.
        offsets = torch.where(offsets % 2 == 1, (offsets + 1) // 2, -(offsets // 2))
        beside = (place.unsqueeze(-1) + offsets) % max(customers, 1)  # [B, n, K]
        near = order.gather(1, beside.flatten(1)).view_as(beside)
        targets = (
            torch.cat([near + 1, torch.zeros_like(near[..., :1])], -1)
            if degree
            else (torch.zeros(*angle.shape, 1, dtype=torch.int64, device=locs.device))
        )
        graph = CandidateGraph(targets, True)
        here = locs[:, graph.origins()]  # [B, E, 2]
        goal = graph.destinations().unsqueeze(-1).expand_as(here)
        there = locs.gather(1, goal)
        lengths = (here - there).norm(dim=-1)
        a, b = here - locs[:, :1], there - locs[:, :1]
        # Towards the depot and from it there is no angle; such edges count as straight.
        size = a.norm(dim=-1) * b.norm(dim=-1)
        cosine = torch.where(size > 0, (a * b).sum(-1) / size.clamp_min(1e-12), 1.0)
        return graph, torch.stack([lengths, cosine], -1), lengths


@EMBEDDINGS.register("cvrpmvc")
def cvrpmvc_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init, context and edge embeddings of the CVRPMVC."""
    return dataclasses.replace(cvrp_embeddings(config), edge=CVRPMVCEdgeEmbedding)
