"""Synthesis attention: scores of nodes and of their positions, mixed by a small network."""

from __future__ import annotations

import torch

from torch import Tensor, nn

from rl4co.models.nn.dual_aspect import feedforward
from rl4co.models.nn.heads import HeadMerge, HeadProjection, WholeNorm, head_size


class SynthesisAttention(nn.Module):
    """Attention whose weights come from two kinds of scores.

    Paper: Ma et al. (2022), N2S, https://arxiv.org/abs/2204.11399

    $$A = \\mathrm{softmax}(\\mathrm{MLP}([q_1 k_1, \\dots, q_H k_H, s_1, \\dots, s_H]))$$

    where the MLP mixes the 2H scores of a pair of nodes to H, and auxiliary scores s are the same
    in all layers.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads H.

    Shapes:
        x `[B, N, D]`, auxiliary `[H, N, N]` or `[B, H, N, N]` → `[B, N, D]`
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        size = head_size(embed_dim, num_heads)
        self.query = HeadProjection(embed_dim, num_heads, size)
        self.key = HeadProjection(embed_dim, num_heads, size)
        self.value = HeadProjection(embed_dim, num_heads, size)
        self.out = HeadMerge(num_heads, size, embed_dim)
        self.mix_in = ScoreMix(2 * num_heads, 2 * num_heads)
        self.mix_out = ScoreMix(2 * num_heads, num_heads)

    def forward(self, x: Tensor, auxiliary: Tensor) -> Tensor:
        """Attends."""
        content_scores = self.query(x) @ self.key(x).transpose(-2, -1)  # [B, H, N, N]
        mixed = self.mix_out(self.mix_in(content_scores, auxiliary).relu())  # [B, H, N, N]
        return self.out(mixed.softmax(-1) @ self.value(x))


class ScoreMix(nn.Linear):
    """A linear map over the heads of scores of all pairs, of one kind or several.

    Scores that all instances share (without a batch axis) are mixed once.

    Shapes:
        scores `[*B, H_1, N, N]`, `[*B, H_2, N, N]`, ... → `[*B, out, N, N]`, with `in_features` the
        sum of the H
    """

    def forward(self, *scores: Tensor) -> Tensor:
        """Mixes."""
        weights = self.weight.split([each.shape[-3] for each in scores], 1)
        mixed = self.bias[:, None, None]
        # The last first: what is shared is added up before it meets the instances.
        for weight, each in zip(reversed(weights), reversed(scores), strict=True):
            flat = each.flatten(-2)  # [*B, H, N * N]
            # Expanded, as torch would otherwise bring the heads to the end and back.
            part = weight.expand(*flat.shape[:-2], *weight.shape) @ flat
            mixed = part.unflatten(-1, each.shape[-2:]) + mixed
        return mixed


class SynthesisLayer(nn.Module):
    """Synthesis attention and a feed-forward layer without bias, with residuals and norms.

    Args:
        embed_dim: Size D of embeddings.
        num_heads: Heads H.
        feedforward_hidden: Width of the feed-forward layer.
    """

    def __init__(self, embed_dim: int, num_heads: int, feedforward_hidden: int) -> None:
        super().__init__()
        self.attention = SynthesisAttention(embed_dim, num_heads)
        self.feedforward = feedforward(embed_dim, feedforward_hidden, bias=False)
        self.norm = WholeNorm()

    def forward(self, x: Tensor, auxiliary: Tensor) -> Tensor:
        """Embeddings after the layer; see :class:`SynthesisAttention` for shapes."""
        x = self.norm(x + self.attention(x, auxiliary))
        return self.norm(x + self.feedforward(x))


class PositionScores(nn.Module):
    """Auxiliary scores of positions in a tour: `[N, D]` → `[H, N, N]`, not scaled.

    Args:
        embed_dim: Size D of positional vectors.
        num_heads: Heads H.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        size = head_size(embed_dim, num_heads)
        self.query = HeadProjection(embed_dim, num_heads, size)
        self.key = HeadProjection(embed_dim, num_heads, size)

    def forward(self, positions: Tensor) -> Tensor:
        """Scores of all pairs of positions."""
        query, key = self.query(positions), self.key(positions)
        # They reach hundreds, where rounding in float32 shows in probabilities. The table is small.
        dtype = positions.dtype if positions.device.type == "mps" else torch.float64
        return (query.to(dtype) @ key.to(dtype).transpose(-2, -1)).to(positions.dtype)
