"""The value of a complete solution that is being improved."""

from __future__ import annotations

import math

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.models.nn.dual_aspect import feedforward
from rl4co.models.nn.heads import HeadMerge, HeadProjection, WholeNorm
from rl4co.models.nn.linear_stack import LinearStack
from rl4co.models.nn.scores import ScoreFn, get_score


class SolutionCritic(nn.Module):
    """One attention layer over the embeddings of the nodes, pooled to a number.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads; D need not be a multiple of them.
        head_dim: Size of a head (default: D shared by the heads, rounded down).
        feedforward_hidden: Width of the feed-forward layer (default: D).
        pooled_dim: Size of what is pooled (default: half of D).
        hidden: Widths of the two layers between what is pooled and the value (default: D and half
            of it).
        bias: Whether the projections before pooling have biases.
        use_max: Whether the maximum over nodes is pooled beside the mean.
        use_cost: Whether the best cost so far is an input.
        dropout: Probability of dropout.
        score: Compatibility of queries and keys: "dot", "cauchy" or a function.

    Shapes:
        embeddings `[B, N, D]`, best costs so far `[B]` → `[B]`
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int = 4,
        head_dim: int | None = None,
        feedforward_hidden: int | None = None,
        pooled_dim: int | None = None,
        hidden: Sequence[int] | None = None,
        bias: bool = True,
        use_max: bool = True,
        use_cost: bool = True,
        dropout: float = 0.0,
        score: str | ScoreFn = "dot",
    ) -> None:
        super().__init__()
        half = max(embed_dim // 2, 1)
        pooled_dim, hidden = pooled_dim or half, hidden or (embed_dim, half)
        size = head_dim or max(embed_dim // num_heads, 1)
        self.use_max, self.use_cost = use_max, use_cost
        self.score = None if score == "dot" else get_score(score)  # None: torch's attention
        self.query = HeadProjection(embed_dim, num_heads, size)
        self.key = HeadProjection(embed_dim, num_heads, size)
        self.value = HeadProjection(embed_dim, num_heads, size)
        self.out = HeadMerge(num_heads, size, embed_dim)
        self.feedforward = feedforward(embed_dim, feedforward_hidden or embed_dim)
        self.norm = WholeNorm()
        self.project_node = nn.Linear(embed_dim, pooled_dim, bias=bias)
        self.project_graph = nn.Linear(embed_dim, pooled_dim, bias=bias)
        width = pooled_dim * (2 if use_max else 1) + int(use_cost)
        self.network = LinearStack([width, *hidden, 1], dropout)

    def forward(self, embeddings: Tensor, cost: Tensor) -> Tensor:
        """The value; nothing is learned about the embeddings, which are taken as constants."""
        x = embeddings.detach()
        x = self.norm(x + self.out(self._attend(self.query(x), self.key(x), self.value(x))))
        x = self.norm(x + self.feedforward(x))
        graph = self.project_graph(x.mean(1))  # [B, P]
        y = self.project_node(x)  # [B, N, P]
        pooled = [y.mean(1) + graph]
        if self.use_max:
            pooled.append(y.amax(1) + graph)
        if self.use_cost:
            pooled.append(cost.to(x.dtype).unsqueeze(-1))
        return self.network(torch.cat(pooled, -1)).squeeze(-1)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Heads `[B, H, N, d]`."""
        if self.score is None:
            return F.scaled_dot_product_attention(query, key, value)
        scores = self.score(query, key) / math.sqrt(query.shape[-1])  # [B, H, N, N]
        return scores.softmax(-1) @ value
