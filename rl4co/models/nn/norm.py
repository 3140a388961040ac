"""Normalisation over nodes by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from rl4co.core.errors import UnknownNameError


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation over all nodes of all instances: `[B, N, D]` → `[B, N, D]`."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalises each channel over batch and nodes."""
        return super().forward(x.flatten(0, -2)).view_as(x)


class InstanceNorm(nn.InstanceNorm1d):
    """Normalisation of each channel over the nodes of one instance: `[B, N, D]` → `[B, N, D]`."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalises each channel over nodes."""
        return super().forward(x.transpose(-1, -2)).transpose(-1, -2)


NORMALIZATIONS: dict[str, Callable[[int], nn.Module]] = {
    "batch": lambda dim: BatchNorm(dim),
    "instance": lambda dim: InstanceNorm(dim, affine=True),
    "layer": lambda dim: nn.LayerNorm(dim),
    "none": lambda dim: nn.Identity(),
}


def make_normalization(name: str | None, embed_dim: int) -> nn.Module:
    """The normalisation called `name` (None: no normalisation) for embeddings of size D."""
    name = "none" if name is None else name
    if name not in NORMALIZATIONS:
        raise UnknownNameError("normalization", name, NORMALIZATIONS)
    return NORMALIZATIONS[name](embed_dim)
