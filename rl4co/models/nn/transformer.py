"""The graph attention encoder: post-norm transformer blocks over nodes.

Paper: Kool et al., 2019, https://arxiv.org/abs/1803.08475 (section 3.1, appendix A).
"""

from __future__ import annotations

import torch.nn.functional as F

from torch import Tensor, nn

from rl4co import kernels
from rl4co.core.errors import ConfigError
from rl4co.models.nn.attention import AttentionFn, MultiHeadAttention
from rl4co.models.nn.moe import MoE, MoEConfig
from rl4co.models.nn.norm import make_normalization


@kernels.standard
class FeedForward(nn.Module):
    """Two linear layers with a ReLU in between: `[..., D]` → `[..., D]`."""

    def __init__(self, embed_dim: int, hidden_dim: int) -> None:
        super().__init__()
        self.expand = nn.Linear(embed_dim, hidden_dim)
        self.contract = nn.Linear(hidden_dim, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Position-wise transformation."""
        return self.contract(F.relu(self.expand(x)))


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

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """`[B, N, D]` → `[B, N, D]`."""
        h = self.norm_attention(h + self.attention(h, mask))
        return self.norm_feedforward(h + self.feedforward(h))


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

    def forward(self, h: Tensor, mask: Tensor | None = None) -> Tensor:
        """Node embeddings after all blocks."""
        for layer in self.layers:
            h = layer(h, mask)
        return h
