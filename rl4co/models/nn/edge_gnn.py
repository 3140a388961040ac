"""Graph network with node and edge embeddings, on graphs in which all nodes have K edges.

Paper: Joshi et al. (2019), https://arxiv.org/abs/1906.01227; in the form of DeepACO (Ye et al.,
2023), https://arxiv.org/abs/2309.14032.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.core.graphs import CandidateGraph


class EdgeGNNLayer(nn.Module):
    """One layer of messages along edges.

    $$x_i' = x_i + \\mathrm{SiLU}(\\mathrm{BN}(V_1 x_i +
      \\frac{1}{|N_i|} \\sum_{j \\in N_i} \\sigma(e_{ij}) \\odot V_2 x_j))$$
    $$e_{ij}' = e_{ij} + \\mathrm{SiLU}(\\mathrm{BN}(W e_{ij} + V_3 x_i + V_4 x_j))$$

    Args:
        embed_dim: Embedding size D.

    Shapes:
        nodes `[B, N, D]`, edges `[B, E, D]` → the same
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(embed_dim, embed_dim)  # V1
        self.message = nn.Linear(embed_dim, embed_dim)  # V2
        self.origin = nn.Linear(embed_dim, embed_dim)  # V3
        self.destination = nn.Linear(embed_dim, embed_dim)  # V4
        self.edge = nn.Linear(embed_dim, embed_dim)  # W
        self.norm_nodes = nn.BatchNorm1d(embed_dim)
        self.norm_edges = nn.BatchNorm1d(embed_dim)

    def forward(
        self, nodes: Tensor, edges: Tensor, graph: CandidateGraph, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """New embeddings; `places [B, E]` are the rows of the destinations in `[B * N, D]`."""
        messages = edges.sigmoid() * F.embedding(places, self.message(nodes).flatten(0, 1))
        mean = graph.regular(messages).mean(2)  # [B, R, D]
        if graph.has_hub:
            mean = torch.cat([graph.hub(messages).mean(1, keepdim=True), mean], 1)  # [B, N, D]
        new_nodes = nodes + F.silu(_normalise(self.norm_nodes, self.own(nodes) + mean))
        change = self.edge(edges) + F.embedding(places, self.destination(nodes).flatten(0, 1))
        change = change + _at_origins(self.origin(nodes), graph)
        new_edges = edges + F.silu(_normalise(self.norm_edges, change))
        return new_nodes, new_edges


class EdgeGNN(nn.Module):
    """Layers of :class:`EdgeGNNLayer` after a SiLU on the embedded features.

    Args:
        embed_dim: Embedding size D.
        num_layers: Number of layers.

    Shapes:
        nodes `[B, N, D]`, edges `[B, E, D]` → the same
    """

    def __init__(self, embed_dim: int = 32, num_layers: int = 12) -> None:
        super().__init__()
        check_at_least(1, embed_dim=embed_dim, num_layers=num_layers)
        self.layers = nn.ModuleList(EdgeGNNLayer(embed_dim) for _ in range(num_layers))

    def forward(self, nodes: Tensor, edges: Tensor, graph: CandidateGraph) -> tuple[Tensor, Tensor]:
        """Embeddings of nodes and edges."""
        offset = torch.arange(len(nodes), device=nodes.device).unsqueeze(1) * nodes.shape[1]
        places = graph.destinations() + offset  # [B, E]
        nodes, edges = F.silu(nodes), F.silu(edges)
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, graph, places)
        return nodes, edges


class EdgeHead(nn.Module):
    """Weights in (0, 1) of edges: a perceptron with SiLU and a sigmoid.

    Args:
        embed_dim: Embedding size D.
        num_layers: Linear layers.
        by_node: Whether the weights of a node's edges add up to one (softmax) instead.

    Shapes:
        edges `[B, E, D]` → `[B, E]`
    """

    def __init__(self, embed_dim: int, num_layers: int = 3, by_node: bool = False) -> None:
        super().__init__()
        check_at_least(1, num_layers=num_layers)
        sizes = [embed_dim] * num_layers + [1]
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(sizes)
        )
        self.by_node = by_node

    def forward(self, edges: Tensor, graph: CandidateGraph) -> Tensor:
        """Weights."""
        for layer in self.layers[:-1]:
            edges = F.silu(layer(edges))
        logits = self.layers[-1](edges).squeeze(-1)  # [B, E]
        if not self.by_node:
            return logits.sigmoid()
        shares = graph.regular(logits).softmax(-1).flatten(1)
        return torch.cat([shares, graph.hub(logits).softmax(-1)], 1) if graph.has_hub else shares


def _normalise(norm: nn.Module, values: Tensor) -> Tensor:
    """Batch normalisation over all rows of all instances: `[B, R, D]` → `[B, R, D]`."""
    normalised: Tensor = norm(values.flatten(0, 1))
    return normalised.view_as(values)


def _at_origins(nodes: Tensor, graph: CandidateGraph) -> Tensor:
    """What belongs to the origin of each edge: `[B, N, D]` → `[B, E, D]`."""
    degree = graph.targets.shape[2]
    regular = nodes[:, 1:] if graph.has_hub else nodes
    repeated = regular.unsqueeze(2).expand(-1, -1, degree, -1).flatten(1, 2)  # [B, R * K, D]
    if not graph.has_hub:
        return repeated
    return torch.cat([repeated, nodes[:, :1].expand_as(regular)], 1)
