"""Heterogeneous graph neural network over operations and machines.

Paper: Song et al., 2022, https://doi.org/10.1109/TII.2022.3189725. Original code:
songwenas12/fjsp-drl.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.models.nn.gcn import predecessors, successors
from rl4co.models.nn.masked_norm import make_masked_normalization, normalize


class EdgeAttention(nn.Module):
    """Attention from one side of a bipartite graph to its neighbours on the other, and to itself.

    $$\\epsilon_{ij} = \\mathrm{Softmax}_{j \\in N_i \\cup \\{i\\}}\\,
      \\sigma(a_r^\\top h_i + a_c^\\top h_j + a_e\\, p_{ij}), \\qquad
      m_i = \\epsilon_{ii} h_i + \\sum_{j} \\epsilon_{ij} (h_j + p_{ij} w)$$

    Edge embeddings $p_{ij} w$ are multiples of one vector, so they are summed as numbers.

    Args:
        embed_dim: Embedding size D.

    Shapes:
        `x [B, R, D]`, `other [B, C, D]`, `weights [B, R, C]`, `edges [B, R, C]` → `[B, R, D]`
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(embed_dim)
        self.self_score = nn.Parameter(torch.empty(embed_dim).uniform_(-bound, bound))
        self.other_score = nn.Parameter(torch.empty(embed_dim).uniform_(-bound, bound))
        self.edge_score = nn.Parameter(torch.empty(1).uniform_(-1.0, 1.0))
        self.edge_value = nn.Parameter(torch.empty(embed_dim).uniform_(-1.0, 1.0))

    def forward(self, x: Tensor, other: Tensor, weights: Tensor, edges: Tensor) -> Tensor:
        """Messages to the nodes of `x`."""
        to_itself = (x @ self.self_score).unsqueeze(-1)  # [B, R, 1]
        score = to_itself + (other @ self.other_score).unsqueeze(-2) + self.edge_score * weights
        score = torch.where(edges, F.leaky_relu(score, 0.2), -torch.inf)  # [B, R, C]
        self_loop = F.leaky_relu(2.0 * to_itself, 0.2)
        share = torch.cat([score, self_loop], -1).softmax(-1)  # [B, R, C + 1]
        to_other, to_self = share[..., :-1], share[..., -1:]
        mean_weight = (to_other * weights).sum(-1, keepdim=True)  # [B, R, 1]
        message = torch.baddbmm(to_self * x, to_other, other)  # [B, R, D]
        return torch.addcmul(message, mean_weight, self.edge_value)


class HGNNLayer(nn.Module):
    """One layer: machines look at operations, operations at machines and at their neighbours.

    Operations combine four views by a small network: predecessor, successor, eligible machines and
    themselves. Both sides see what the other one was.

    Args:
        embed_dim: Embedding size D.
        feedforward_hidden: Width of the networks.
        normalization: "batch", "instance", "layer" or None.
    """

    def __init__(self, embed_dim: int, feedforward_hidden: int, normalization: str | None) -> None:
        super().__init__()
        self.operation_attention = EdgeAttention(embed_dim)
        self.machine_attention = EdgeAttention(embed_dim)
        self.operation_mix = nn.Sequential(
            nn.Linear(4 * embed_dim, feedforward_hidden),
            nn.ReLU(),
            nn.Linear(feedforward_hidden, embed_dim),
        )
        self.machine_mix = nn.Sequential(
            nn.Linear(2 * embed_dim, feedforward_hidden),
            nn.ReLU(),
            nn.Linear(feedforward_hidden, embed_dim),
        )
        self.operation_norm = make_masked_normalization(normalization, embed_dim)
        self.machine_norm = make_masked_normalization(normalization, embed_dim)

    def forward(
        self,
        operations: Tensor,
        machines: Tensor,
        weights: Tensor,
        edges: Tensor,
        follows: Tensor,
        real: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """`[B, O, D], [B, M, D]` → the same shapes; arguments see :class:`HeterogeneousGNN`."""
        views = [
            predecessors(operations, follows),
            successors(operations, follows),
            self.operation_attention(operations, machines, weights, edges),
            operations,
        ]
        update = self.operation_mix(torch.cat(views, -1))
        views = [self.machine_attention(machines, operations, weights.mT, edges.mT), machines]
        machine_update = self.machine_mix(torch.cat(views, -1))
        return (
            normalize(self.operation_norm, operations + update, real[0]),
            normalize(self.machine_norm, machines + machine_update, real[1]),
        )


class HeterogeneousGNN(nn.Module):
    """A stack of :class:`HGNNLayer`.

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.
        feedforward_hidden: Width of the layers' networks (default: 2 D).
        normalization: "batch", "instance", "layer" or None.

    Shapes:
        `operations [B, O, D]`, `machines [B, M, D]`, processing times `weights [B, O, M]`, eligible
        pairs `edges [B, O, M]`, `follows [B, O]` (has a predecessor: the one before it), `real`
        (what is no padding: operations `[B, O]`, machines `[B, M]`) → operations `[B, O, D]`,
        machines `[B, M, D]`
    """

    def __init__(
        self,
        embed_dim: int,
        num_layers: int = 2,
        feedforward_hidden: int | None = None,
        normalization: str | None = "instance",
    ) -> None:
        super().__init__()
        check_at_least(1, num_layers=num_layers)
        hidden = feedforward_hidden or 2 * embed_dim
        self.layers = nn.ModuleList(
            HGNNLayer(embed_dim, hidden, normalization) for _ in range(num_layers)
        )

    def forward(
        self,
        operations: Tensor,
        machines: Tensor,
        weights: Tensor,
        edges: Tensor,
        follows: Tensor,
        real: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        """Embeddings after all layers."""
        for layer in self.layers:
            operations, machines = layer(operations, machines, weights, edges, follows, real)
        return operations, machines
