"""Dual-aspect collaborative attention: nodes and their positions, side by side."""

from __future__ import annotations

import math

import torch

from torch import Tensor, nn

from rl4co.models.nn.heads import HeadMerge, HeadProjection, WholeNorm, head_size
from rl4co.models.nn.scores import ScoreFn, dot_score


class DualAspectAttention(nn.Module):
    """Attention in which two aspects of a node each use the other's attention weights as well.

    Paper: Ma et al. (2021), https://arxiv.org/abs/2110.02544

    With attention weights $A_h$ of the nodes and $A_g$ of the positions, a head of the node aspect
    is $[A_h (h V_h), A_g (h V_{hg})]$, one of the position aspect $[A_h (g V_{gh}), A_g (g V_g)]$.

    Args:
        embed_dim: Size D of both aspects.
        num_heads: Heads H.
        score: Compatibility of the node aspect; that of positions is the scalar product.

    Shapes:
        h `[B, N, D]`, g `[B, N, D]` → the same
    """

    def __init__(self, embed_dim: int, num_heads: int, score: ScoreFn = dot_score) -> None:
        super().__init__()
        size = head_size(embed_dim, num_heads)
        self.scale, self.score = 1 / math.sqrt(size), score
        self.node_query = HeadProjection(embed_dim, num_heads, size)
        self.node_key = HeadProjection(embed_dim, num_heads, size)
        self.position_query = HeadProjection(embed_dim, num_heads, size)
        self.position_key = HeadProjection(embed_dim, num_heads, size)
        # The first half of the heads is for the weights of nodes, the second for the positions'.
        self.node_value = HeadProjection(embed_dim, 2 * num_heads, size)
        self.position_value = HeadProjection(embed_dim, 2 * num_heads, size)
        self.node_out = HeadMerge(num_heads, 2 * size, embed_dim)
        self.position_out = HeadMerge(num_heads, 2 * size, embed_dim)

    def forward(self, h: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Attends."""
        by_node = (self.scale * self.score(self.node_query(h), self.node_key(h))).softmax(-1)
        by_place = (self.scale * dot_score(self.position_query(g), self.position_key(g))).softmax(
            -1
        )
        results = []
        for value, out in (
            (self.node_value(h), self.node_out),
            (self.position_value(g), self.position_out),
        ):
            first, second = value.chunk(2, 1)  # [B, H, N, d] each
            results.append(out(torch.cat([by_node @ first, by_place @ second], -1)))
        return results[0], results[1]


class DualAspectLayer(nn.Module):
    """Dual-aspect attention and a feed-forward layer for each aspect, with residuals and norms.

    Args:
        embed_dim: Size D of both aspects.
        num_heads: Heads H.
        feedforward_hidden: Width of the feed-forward layers.
        score: See :class:`DualAspectAttention`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_hidden: int,
        score: ScoreFn = dot_score,
    ) -> None:
        super().__init__()
        self.attention = DualAspectAttention(embed_dim, num_heads, score)
        self.node_feedforward = feedforward(embed_dim, feedforward_hidden)
        self.position_feedforward = feedforward(embed_dim, feedforward_hidden)
        self.norm = WholeNorm()

    def forward(self, h: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Both aspects after the layer."""
        for_h, for_g = self.attention(h, g)
        h, g = self.norm(h + for_h), self.norm(g + for_g)
        return self.norm(h + self.node_feedforward(h)), self.norm(g + self.position_feedforward(g))


class PairScores(nn.Module):
    """Compatibility of all pairs of nodes, in several heads whose keys are as large as embeddings.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads H.
        scaled: Whether scores are divided by $\\sqrt D$.
        score: Compatibility of queries and keys.

    Shapes:
        queries `[B, M, D]`, keys `[B, N, D]` → `[B, H, M, N]`
    """

    def __init__(
        self, embed_dim: int, num_heads: int, scaled: bool = True, score: ScoreFn = dot_score
    ) -> None:
        super().__init__()
        self.scale, self.score = 1 / math.sqrt(embed_dim) if scaled else 1.0, score
        self.query = HeadProjection(embed_dim, num_heads, embed_dim)
        self.key = HeadProjection(embed_dim, num_heads, embed_dim)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores of all pairs."""
        return self.scale * self.score(self.query(queries), self.key(keys))


class MaxPooled(nn.Module):
    """Embeddings that include the instance as a context, $W_n h_i + W_g \\max_j h_j$, without bias.

    Shapes:
        `[B, N, D]` → `[B, N, D]`
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.project_node = nn.Linear(embed_dim, embed_dim, bias=False)
        self.project_graph = nn.Linear(embed_dim, embed_dim, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        """Adds the maximum over nodes."""
        return self.project_node(h) + self.project_graph(h.amax(-2, keepdim=True))


def feedforward(embed_dim: int, hidden: int, bias: bool = True) -> nn.Sequential:
    """Two linear layers with ReLU between them."""
    return nn.Sequential(
        nn.Linear(embed_dim, hidden, bias=bias),
        nn.ReLU(inplace=True),
        nn.Linear(hidden, embed_dim, bias=bias),
    )
