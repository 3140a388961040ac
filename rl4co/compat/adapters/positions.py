"""Encodings of positions under their published names."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import gather_points
from rl4co.models.nn.positional import CyclicPositionalEncoding

if TYPE_CHECKING:
    from tensordict import TensorDictBase


def sinusoidal_table(num_positions: int, embed_dim: int) -> Tensor:
    """Sines (even channels) and cosines of positions 0, 1, ... (Vaswani et al., 2017): `[N, D]`."""
    position = torch.arange(num_positions).unsqueeze(1)
    channel = torch.arange(0, embed_dim, 2)
    angle = position * torch.exp(channel * (-math.log(10_000.0) / embed_dim))  # [N, D / 2]
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :embed_dim]


class PositionalEncoding(nn.Module):
    """Adds sinusoidal encodings of given positions, then drops some channels.

    Args:
        embed_dim: Embedding size D.
        dropout: Probability of dropout.
        max_len: Number of positions.

    Shapes:
        `hidden [B, N, D]`, `seq_pos [B, N]` → `[B, N, D]`
    """

    pe: Tensor

    def __init__(self, embed_dim: int, dropout: float = 0.1, max_len: int = 1000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pe", sinusoidal_table(max_len, embed_dim).unsqueeze(0))

    def forward(self, hidden: Tensor, seq_pos: Tensor) -> Tensor:
        """Embeddings that know their positions."""
        out: Tensor = self.dropout(hidden + self.pe[0, seq_pos])
        return out


class RandomEncoding(nn.Module):
    """Adds vectors to classes that mean nothing but "the same as": another one in each call.

    Args:
        embed_dim: Embedding size D.
        max_classes: Number of vectors.

    Shapes:
        `hidden [B, N, D]`, `classes [B, N]` (None: all different) → `[B, N, D]`
    """

    emb: Tensor

    def __init__(self, embed_dim: int, max_classes: int = 100) -> None:
        super().__init__()
        self.max_classes = max_classes
        self.register_buffer("emb", torch.rand(max_classes, embed_dim))

    def forward(self, hidden: Tensor, classes: Tensor | None = None) -> Tensor:
        """Embeddings that know which others are of their class."""
        batch, size = hidden.shape[:2]
        if classes is None:
            classes = torch.arange(size, device=hidden.device).expand(batch, size)
        order = torch.rand(batch, self.max_classes, device=hidden.device).argsort(-1)
        return hidden + gather_points(self.emb[order], classes)


class AbsolutePositionalEmbedding(nn.Module):
    """Sinusoidal encodings of the positions in a tour: state → `[B, N, D]`."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        self.embed_dim = embed_dim

    def forward(self, td: TensorDictBase) -> Tensor:
        """Encodings of `visited_time [B, N]`."""
        order = td["visited_time"]
        return sinusoidal_table(order.shape[-1], self.embed_dim).to(order.device)[order]


class CyclicPositionalEmbedding(nn.Module):
    """Cyclic encodings of the positions in a tour (Ma et al., 2021): state → `[B, N, D]`.

    Args:
        embed_dim: Embedding size D.
        mean_pooling: Only True is supported: encodings are averaged over five neighbours.
    """

    def __init__(self, embed_dim: int, mean_pooling: bool = True) -> None:
        super().__init__()
        if not mean_pooling:
            raise ConfigError("expected mean_pooling=True, got False")
        self.encoding = CyclicPositionalEncoding(embed_dim)

    def forward(self, td: TensorDictBase) -> Tensor:
        """Encodings of `visited_time [B, N]`."""
        order = td["visited_time"]
        out: Tensor = self.encoding(order, torch.empty(0, device=order.device))
        return out


#: Encodings of positions in a tour by their published names.
POSITIONS: dict[str, type[nn.Module]] = {
    "APE": AbsolutePositionalEmbedding,
    "CPE": CyclicPositionalEmbedding,
}


def pos_init_embedding(pos_name: str, config: Mapping[str, Any]) -> nn.Module:
    """The encoding called `pos_name` ("APE", "CPE"), with its arguments."""
    if pos_name not in POSITIONS:
        raise UnknownNameError("positional embedding", pos_name, POSITIONS)
    return POSITIONS[pos_name](**config)
