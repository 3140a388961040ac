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
        self.mix_in = nn.Linear(2 * num_heads, 2 * num_heads)
        self.mix_out = nn.Linear(2 * num_heads, num_heads)

    def forward(self, x: Tensor, auxiliary: Tensor) -> Tensor:
        """Attends."""
        own = self.query(x) @ self.key(x).transpose(-2, -1)  # [B, H, N, N]
        num_heads = own.shape[1]
        weight, auxiliary_weight = self.mix_in.weight.split(num_heads, 1)  # [2H, H] each
        # What comes from auxiliary scores is computed once if instances share them.
        offset = _mix(auxiliary_weight, auxiliary) + self.mix_in.bias[:, None, None]
        hidden = (_mix(weight, own) + offset).relu_()  # [B, 2H, N, N]
        mixed = _mix(self.mix_out.weight, hidden) + self.mix_out.bias[:, None, None]
        return self.out(mixed.softmax(-1) @ self.value(x))


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


def _mix(weight: Tensor, scores: Tensor) -> Tensor:
    """A linear map over heads: `[O, H]`, `[*B, H, N, N]` → `[*B, O, N, N]`."""
    flat = scores.flatten(-2)  # [*B, H, N * N]
    # Expanded, as torch would otherwise bring the heads to the end and back.
    weight = weight.expand(*flat.shape[:-2], *weight.shape)
    return torch.matmul(weight, flat).unflatten(-1, scores.shape[-2:])
