"""The graph attention encoder: post-norm transformer blocks over nodes.

Paper: Kool et al., 2019, https://arxiv.org/abs/1803.08475 (section 3.1, appendix A).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.nn.attention import AttentionFn, MultiHeadAttention
from rl4co.models.nn.dense import feed_forward
from rl4co.models.nn.factors import Factors
from rl4co.models.nn.moe import MoE, MoEConfig
from rl4co.models.nn.norm import make_normalization


class FeedForward(nn.Module):
    """Two linear layers with a ReLU in between: `[..., D]` → `[..., D]`."""

    def __init__(self, embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.expand = nn.Linear(embed_dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x: Tensor, residual: bool = False) -> Tensor:
        """Position-wise transformation, with residual plus x."""
        return feed_forward(x, self.expand, self.contract, residual)


def add_block(
    block: nn.Module, h: Tensor, *arguments: Any, factors: Factors | None = None
) -> Tensor:
    """$h + \\mathrm{Block}(h)$; known blocks add h while they multiply, and use its factors."""
    if type(block) in (MultiHeadAttention, FeedForward) and not block._forward_hooks:
        extra = {} if factors is None else {"factors": factors}
        return block(h, *arguments, residual=True, **extra)
    return h + block(h, *arguments)


class EncoderLayer(nn.Module):
    """One block: attention and feed-forward, each with residual and normalisation.

    $$\\hat h = \\mathrm{Norm}(h + \\mathrm{MHA}(h)), \\qquad
      h' = \\mathrm{Norm}(\\hat h + \\mathrm{FF}(\\hat h))$$
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_hidden: int,
        normalization: str | None,
        bias: bool,
        sdpa_fn: AttentionFn | None,
        moe: MoEConfig | None = None,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(embed_dim, num_heads, bias=bias, sdpa_fn=sdpa_fn)
        self.norm_attention = make_normalization(normalization, embed_dim)
        self.feedforward: nn.Module = (
            FeedForward(embed_dim, feedforward_hidden)
            if moe is None
            else MoE(embed_dim, embed_dim, feedforward_hidden, moe)
        )
        self.norm_feedforward = make_normalization(normalization, embed_dim)

    def forward(
        self, h: Tensor, mask: Tensor | None = None, factors: Factors | None = None
    ) -> Tensor:
        """`[B, N, D]` → `[B, N, D]`; factors are those of h, where they are known."""
        h = self.norm_attention(add_block(self.attention, h, mask, factors=factors))
        return self.norm_feedforward(add_block(self.feedforward, h))


class GraphAttentionNetwork(nn.Module):
    """A stack of encoder layers.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        num_layers: Blocks.
        feedforward_hidden: Width of the feed-forward layers.
        normalization: "batch", "instance", "layer" or None.
        bias: Whether the attention projections have biases.
        sdpa_fn: Attention function.
        moe: Experts in place of each feed-forward layer (None: one layer for all).

    Shapes:
        `h [B, N, D]`, `mask [B, N, N]` (True = attend) → `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        num_heads: int = 8,
        num_layers: int = 3,
        feedforward_hidden: int = 512,
        normalization: str | None = "batch",
        bias: bool = True,
        sdpa_fn: AttentionFn | None = None,
        moe: MoEConfig | None = None,
    ) -> None:
        super().__init__()
        if num_layers < 0:
            raise ConfigError(f"expected a non-negative number of layers, got {num_layers}")
        self.layers = nn.ModuleList(
            EncoderLayer(
                embed_dim, num_heads, feedforward_hidden, normalization, bias, sdpa_fn, moe
            )
            for _ in range(num_layers)
        )

    def forward(
        self, h: Tensor, mask: Tensor | None = None, factors: Factors | None = None
    ) -> Tensor:
        """Node embeddings after all blocks; factors are those of h, where they are known."""
        for layer in self.layers:
            known = factors is not None and type(layer) is EncoderLayer
            h = layer(h, mask, factors) if known else layer(h, mask)
            factors = None  # of the first layer's input
        return h
