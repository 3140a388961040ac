"""ATSP embeddings: the cost matrix, written into node embeddings; first and last node as context.

A policy that compares node embeddings by dot products has to find the cost from i to j in the
embeddings of i and j. So every node gets a code, nearly orthogonal to those of all others, and
learns the codes of the nodes that are near: the product of "codes near i" with "code of j" then
tells how near j is.
"""

from __future__ import annotations

import math

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings.tsp import TSPContext

#: How far "near" reaches, in units of the mean cost of an arc.
REACHES = (0.1, 0.3, 1.0)


class ATSPInitEmbedding(nn.Module):
    """Linear map of a node's code, of the codes around it, and of its costs: state → `[B, N, D]`.

    $$h_i = W [c_i, \\textstyle\\sum_j p_{ij} c_j, \\sum_j p_{ij} d_{ij}, \\bar d_i] + b, \\qquad
      p_{ij} = \\mathrm{softmax}_{j \\ne i}(-d_{ij} / \\rho)$$

    with costs d in units of their mean. The sums are there for each reach $\\rho$ in
    :data:`REACHES`, and once more for arriving instead of leaving. The code $c_i$ is
    $(\\cos \\omega k_i, \\sin \\omega k_i)$ with fixed random frequencies $\\omega$ and the rank
    $k_i$ of node i by the total cost of its arcs. Kwon et al. (2021, MatNet) draw random one-hot
    codes instead, for as many nodes as the code is long; ranks work for any number of nodes, need
    no random numbers, and make the embedding independent of the numbering of the nodes.
    """

    frequencies: Tensor
    reaches: Tensor

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        num_frequencies = math.ceil(embed_dim / 2)
        self.register_buffer("frequencies", math.pi * torch.rand(num_frequencies))
        self.register_buffer("reaches", torch.tensor(REACHES), persistent=False)
        kinds = 2 * len(REACHES)  # for leaving and for arriving
        width = (1 + kinds) * 2 * num_frequencies + kinds + 2
        self.init_embed = nn.Linear(width, embed_dim, linear_bias)

    def forward(self, state: Mapping[str, Tensor]) -> Tensor:
        """Node embeddings."""
        costs = _without_diagonal(state["cost_matrix"])  # [B, N, N]
        num_nodes = costs.shape[-1]
        scale = costs.abs().sum((-2, -1), keepdim=True) / max(num_nodes * (num_nodes - 1), 1)
        costs = costs / torch.where(scale > 0, scale, torch.ones_like(scale))
        both = torch.stack([costs, costs.mT], 1)  # [B, 2, N, N], leaving and arriving
        near, distance = self._neighbourhoods(both)
        codes = self._codes(costs)
        around = near @ codes.unsqueeze(1)  # [B, K, N, C]
        features = [
            codes,
            around.transpose(1, 2).flatten(2),  # [B, N, K * C]
            distance.transpose(1, 2),  # [B, N, K]
            both.mean(-1).transpose(1, 2),  # [B, N, 2]
        ]
        return self.init_embed(torch.cat(features, -1))

    def _codes(self, costs: Tensor) -> Tensor:
        """A code for each node, by its rank: `[B, N, N]` → `[B, N, C]`."""
        total = costs.sum(-1) + costs.sum(-2)  # [B, N]
        rank = total.argsort(dim=-1, stable=True).argsort(-1)
        angle = rank.unsqueeze(-1) * self.frequencies  # [B, N, C / 2]
        return torch.cat([angle.cos(), angle.sin()], -1)

    def _neighbourhoods(self, costs: Tensor) -> tuple[Tensor, Tensor]:
        """Weights `[B, K, N, N]` of the nodes near each node, and their mean distance `[B, K, N]`.

        K = 2 R: each of the R reaches, for leaving and for arriving.
        """
        itself = torch.eye(costs.shape[-1], dtype=torch.bool, device=costs.device)
        nearness = -costs.unsqueeze(2) / self.reaches.view(-1, 1, 1)  # [B, 2, R, N, N]
        # Not minus infinity: a single node has no other neighbour than itself.
        nearness = nearness.masked_fill(itself, torch.finfo(nearness.dtype).min)
        near = nearness.softmax(-1)
        distance = (near * costs.unsqueeze(2)).sum(-1)  # [B, 2, R, N]
        return near.flatten(1, 2), distance.flatten(1, 2)


def _without_diagonal(costs: Tensor) -> Tensor:
    """The matrix `[B, N, N]` with zeros on the diagonal, which is never travelled."""
    itself = torch.eye(costs.shape[-1], dtype=torch.bool, device=costs.device)
    return costs.masked_fill(itself, 0.0)


@EMBEDDINGS.register("atsp")
def atsp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init embedding of a matrix, and the context of the TSP."""
    return EnvEmbeddings(
        init=ATSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=TSPContext(config.embed_dim),
    )
