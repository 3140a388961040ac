"""Normalisation over nodes of which some are padding.

What is padding changes neither the statistics nor, therefore, any other node.
"""

from __future__ import annotations

import torch

from torch import Tensor, nn

from rl4co.models.nn.norm import BatchNorm, InstanceNorm, make_normalization


class MaskedInstanceNorm(InstanceNorm):
    """Normalisation of each channel over the real nodes of one instance; padding becomes zero.

    Shapes:
        `x [B, N, D]`, `real [B, N]` (None: all) → `[B, N, D]`
    """

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalises each channel over the nodes that are real."""
        if real is None:
            return super().forward(x)
        weight = real.unsqueeze(-2).to(x.dtype)  # [B, 1, N]
        share = weight / weight.sum(-1, keepdim=True).clamp_min(1.0)
        # Sums over nodes as products: several times faster than reductions over a middle axis.
        mean = share @ x  # [B, 1, D]
        centred = x - mean
        variance = share @ centred.square()
        factor = (variance + self.eps).rsqrt()
        out = centred * factor if self.weight is None else centred * (factor * self.weight)
        if self.bias is not None:
            out = out + self.bias
        return out * weight.mT


class MaskedBatchNorm(BatchNorm):
    """Normalisation of each channel over the real nodes of all instances; padding becomes zero.

    Shapes:
        `x [B, N, D]`, `real [B, N]` (None: all) → `[B, N, D]`
    """

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalises each channel over batch and nodes."""
        if real is None:
            return super().forward(x)
        if not self.training:  # fixed statistics: nothing to keep apart
            return super().forward(x) * real.unsqueeze(-1)
        return torch.zeros_like(x).masked_scatter(
            real.unsqueeze(-1), super().forward(x[real].unsqueeze(0))
        )


def make_masked_normalization(name: str | None, embed_dim: int) -> nn.Module:
    """The normalisation called `name` (None: no normalisation), see :func:`normalize`."""
    if name == "instance":
        return MaskedInstanceNorm(embed_dim, affine=True)
    if name == "batch":
        return MaskedBatchNorm(embed_dim)
    return make_normalization(name, embed_dim)


def normalize(norm: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Normalises nodes `[B, N, D]` of which `real [B, N]` are no padding (None: all)."""
    out: Tensor = (
        norm(x, real) if isinstance(norm, MaskedInstanceNorm | MaskedBatchNorm) else norm(x)
    )
    return out


def masked_mean(x: Tensor, real: Tensor) -> Tensor:
    """Mean over real nodes: `[B, N, D], [B, N]` → `[B, D]`; zero if there is none."""
    weight = real.unsqueeze(-2).to(x.dtype)  # [B, 1, N]
    share = weight / weight.sum(-1, keepdim=True).clamp_min(1.0)
    return (share @ x).squeeze(-2)


def masked_max(x: Tensor, real: Tensor) -> Tensor:
    """Largest value of each channel over real nodes: `[B, N, D], [B, N]` → `[B, D]`."""
    return torch.where(real.unsqueeze(-1), x, -torch.inf).amax(-2)
