"""Graph convolutions over the disjunctive graph of a shop.

Operations are the nodes. An operation has edges to its predecessor and successor in the job, and to
all operations that share a machine with it. The latter are cliques, one per machine, so a sum over
neighbours is two products with the membership of operations in machines, instead of one with an
adjacency of all pairs of operations.
"""

from __future__ import annotations

import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.checks import check_at_least


def predecessors(x: Tensor, follows: Tensor) -> Tensor:
    """For each operation what its predecessor in the job has, or zeros.

    Args:
        x: Operations in a row, job after job `[B, O, D]`.
        follows: Whether an operation has a predecessor, which is the one before it `[B, O]`.
    """
    return F.pad(x[:, :-1], (0, 0, 1, 0)) * follows.unsqueeze(-1)


def successors(x: Tensor, follows: Tensor) -> Tensor:
    """For each operation what its successor in the job has, or zeros; see :func:`predecessors`."""
    return F.pad(x[:, 1:] * follows[:, 1:].unsqueeze(-1), (0, 0, 0, 1))


class DisjunctiveGCN(nn.Module):
    """Graph convolutions (Kipf and Welling, 2017) over the disjunctive graph.

    $$h' = \\sigma\\left(\\tilde D^{-1/2} \\tilde A \\tilde D^{-1/2} h W\\right), \\qquad
      \\tilde A = P P^\\top + C$$

    where P holds the machines of each operation and C the chains of the jobs. With one machine per
    operation $P P^\\top$ has a one for each pair that shares a machine, self-loops included; with
    several eligible machines it counts those that two operations share. The last layer has no
    activation; what goes in is added to what comes out.

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.

    Shapes:
        `x [B, O, D]`, `membership [B, M, O]` (0 for padding), `follows [B, O]` → `[B, O, D]`
    """

    def __init__(self, embed_dim: int, num_layers: int = 2) -> None:
        super().__init__()
        check_at_least(1, num_layers=num_layers)
        self.layers = nn.ModuleList(nn.Linear(embed_dim, embed_dim) for _ in range(num_layers))

    def forward(self, x: Tensor, membership: Tensor, follows: Tensor) -> Tensor:
        """Operation embeddings after all layers."""
        member = membership.to(x.dtype)
        chain = follows.to(x.dtype)
        in_chain = chain + F.pad(chain[:, 1:], (0, 1))  # [B, O]
        degree = (member.sum(-1, keepdim=True) * member).sum(-2) + in_chain  # [B, O]
        factor = degree.clamp_min(1.0).rsqrt().unsqueeze(-1)  # [B, O, 1]
        h = x
        for depth, layer in enumerate(self.layers):
            scaled = h * factor
            shared = member.mT @ (member @ scaled)  # [B, O, D]
            chained = predecessors(scaled, chain) + successors(scaled, chain)
            h = layer((shared + chained) * factor)
            if depth + 1 < len(self.layers):
                h = F.relu(h)
        return h + x
