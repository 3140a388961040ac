"""Projections to attention heads, and how improvement methods initialise weights."""

from __future__ import annotations

import math

import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import ConfigError


class HeadProjection(nn.Linear):
    """Linear maps to several heads at once, without bias: `[*B, N, D]` → `[*B, H, N, d]`.

    Args:
        in_dim: Size D of the input.
        num_heads: Heads H.
        head_dim: Size d of a head.
    """

    def __init__(self, in_dim: int, num_heads: int, head_dim: int) -> None:
        super().__init__(in_dim, num_heads * head_dim, bias=False)
        self.num_heads = num_heads
        uniform_(self.weight, head_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Projects and splits."""
        return super().forward(x).unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)


class HeadMerge(nn.Linear):
    """Joins heads and maps them to embeddings, without bias: `[*B, H, N, d]` → `[*B, N, D]`.

    Args:
        num_heads: Heads H.
        head_dim: Size d of a head.
        embed_dim: Size D of the output.
    """

    def __init__(self, num_heads: int, head_dim: int, embed_dim: int) -> None:
        super().__init__(num_heads * head_dim, embed_dim, bias=False)
        uniform_(self.weight, embed_dim)

    def forward(self, heads: Tensor) -> Tensor:
        """Joins and projects."""
        return super().forward(heads.transpose(-2, -3).flatten(-2))


class WholeNorm(nn.Module):
    """Normalisation of an instance over all its nodes and channels, without weights.

    $$y = \\frac{x - \\mu}{\\sqrt{\\sigma^2 + \\epsilon}}$$

    with mean and (unbiased) variance over both axes. The code of DACT, N2S and NeuOpt calls it
    layer normalisation.

    Shapes:
        `[*B, N, D]` → `[*B, N, D]`
    """

    def __init__(self, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises."""
        # Torch's function uses the biased variance, which is smaller by this share.
        count = x.shape[-2] * x.shape[-1]
        share = (count - 1) / count
        return F.layer_norm(x, x.shape[-2:], eps=self.eps * share) * math.sqrt(share)


def uniform_(weight: Tensor, size: int) -> Tensor:
    """Fills a tensor from U(-s, s) with $s = 1 / \\sqrt{size}$, in place."""
    return nn.init.uniform_(weight, -1 / math.sqrt(size), 1 / math.sqrt(size))


def uniform_parameters_(module: nn.Module) -> None:
    """Fills every parameter from U(-s, s), s by its last axis, in place."""
    for parameter in module.parameters():
        uniform_(parameter, parameter.shape[-1])


def head_size(embed_dim: int, num_heads: int) -> int:
    """Size of a head, if the heads share the embedding evenly."""
    if embed_dim % num_heads:
        raise ConfigError(
            f"expected embed_dim to be a multiple of num_heads, got {embed_dim} and {num_heads}"
        )
    return embed_dim // num_heads
