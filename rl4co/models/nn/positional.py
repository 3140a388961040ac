"""Positions in a closed tour as vectors."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch

from numpy.typing import NDArray
from torch import Tensor, nn

from rl4co.core.checks import check_at_least


@functools.lru_cache(maxsize=64)
def cyclic_encoding(num_nodes: int, embed_dim: int) -> NDArray[np.float32]:
    """Cyclic positional encoding: vectors of positions on a circle, close where positions are.

    Paper: Ma et al. (2021), DACT, https://arxiv.org/abs/2110.02544. The paper's formula alone does
    not give the tables of the published weights; their code also truncates wavelengths to integer
    numbers, shifts phases, averages over five neighbours and removes the mean, as here.

    Channel i is a sine (i even) or cosine of $\\frac{2 \\pi}{T_i} |z \\bmod 2 T_i - T_i| +
    \\varphi_i$, where z runs around the circle and the wavelengths $T_i$ grow from 1 to N.

    Args:
        num_nodes: Length N of the tour.
        embed_dim: Channels D.

    Returns:
        `[N, D]`, row t for position t.
    """
    check_at_least(1, num_nodes=num_nodes)
    check_at_least(2, embed_dim=embed_dim)
    half = embed_dim // 2
    wavelengths = np.linspace(num_nodes ** (1 / half), num_nodes, half).astype(int)
    table = np.zeros((num_nodes, embed_dim))
    for i in range(embed_dim):
        index = 3 * (i // 3) + 1
        wavelength = int(wavelengths[index] if index < half else wavelengths[-1])
        phase = 0.0 if i <= embed_dim // 2 else 2 * math.pi * (half - i) / half
        grid = np.arange(0, math.ceil(num_nodes / wavelength) * wavelength, 0.01)
        z = grid[np.linspace(0, len(grid), num_nodes, endpoint=False).astype(int)]
        angle = 2 * math.pi / wavelength * np.abs(z % (2 * wavelength) - wavelength) + phase
        table[:, i] = np.cos(angle) if i % 2 else np.sin(angle)
    pooled = np.mean([np.roll(table, shift, axis=0) for shift in range(-2, 3)], axis=0)
    encoding: NDArray[np.float32] = (pooled - table.mean(0)).astype(np.float32)
    encoding.setflags(write=False)  # it is shared by all who ask
    return encoding


class CyclicPositionalEncoding(nn.Module):
    """Vectors of the positions of nodes in a closed tour, see :func:`cyclic_encoding`.

    The table is made for whatever number of nodes comes along.

    Args:
        embed_dim: Channels D.

    Shapes:
        positions `[*B, N]` → `[*B, N, D]`
    """

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.embed_dim = embed_dim

    def table(self, like: Tensor, num_nodes: int) -> Tensor:
        """Vectors of positions 0 ... N-1 `[N, D]`, on the device and in the dtype of a tensor."""
        table = cyclic_encoding(num_nodes, self.embed_dim)
        return torch.tensor(table, dtype=like.dtype, device=like.device)

    def forward(self, order: Tensor, like: Tensor) -> Tensor:
        """Vectors of given positions, on the device and in the dtype of `like`."""
        return self.table(like, order.shape[-1])[order]
