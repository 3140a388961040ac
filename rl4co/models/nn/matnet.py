"""Layers of MatNet: rows and columns of a matrix attend to each other.

Paper: Kwon et al., 2021, https://arxiv.org/abs/2106.11113. With self-attention: Luttmann and Xie,
2024.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.models.nn.attention import MultiHeadAttention
from rl4co.models.nn.masked_norm import make_masked_normalization, normalize
from rl4co.models.nn.mixed_attention import MixedScoreAttention
from rl4co.models.nn.transformer import FeedForward


class MatNetBlock(nn.Module):
    """One side of a layer: attention to the other side and feed-forward, with residuals and norms.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        feedforward_hidden: Width of the feed-forward layer.
        normalization: "batch", "instance", "layer" or None.
        bias: Whether the attention projections have biases.
        self_attention: Attend to the own side first.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_hidden: int,
        normalization: str | None = "instance",
        bias: bool = False,
        self_attention: bool = False,
    ) -> None:
        super().__init__()
        self.own = MultiHeadAttention(embed_dim, num_heads, bias=bias) if self_attention else None
        self.norm_own = (
            make_masked_normalization(normalization, embed_dim) if self_attention else None
        )
        self.cross = MixedScoreAttention(embed_dim, num_heads, bias=bias)
        self.norm_cross = make_masked_normalization(normalization, embed_dim)
        self.feedforward = FeedForward(embed_dim, feedforward_hidden)
        self.norm_feedforward = make_masked_normalization(normalization, embed_dim)

    def forward(
        self,
        x: Tensor,
        other: Tensor,
        matrix: Tensor,
        mask: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """`[B, R, D], [B, C, D], [B, R, C]` → `[B, R, D]`.

        Args:
            x: This side.
            other: The other side.
            matrix: Entries.
            mask: Entries to attend to `[B, R, C]` (None: all).
            real: Nodes of this side that are no padding `[B, R]` (None: all).
        """
        if self.own is not None and self.norm_own is not None:
            own_mask = None if real is None else real.unsqueeze(-2)  # [B, 1, R]
            x = normalize(self.norm_own, x + self.own(x, own_mask), real)
        x = normalize(self.norm_cross, x + self.cross(x, other, matrix, mask), real)
        return normalize(self.norm_feedforward, x + self.feedforward(x), real)


class MatNetLayer(nn.Module):
    """Rows and columns look at each other at the same time: both see what the other one was.

    Arguments: see :class:`MatNetBlock`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.rows, self.columns = MatNetBlock(*args, **kwargs), MatNetBlock(*args, **kwargs)

    def forward(
        self,
        rows: Tensor,
        columns: Tensor,
        matrix: Tensor,
        mask: Tensor | None = None,
        real_rows: Tensor | None = None,
        real_columns: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`[B, R, D], [B, C, D], [B, R, C]` → `[B, R, D], [B, C, D]`; see :class:`MatNetBlock`."""
        transposed = None if mask is None else mask.mT
        return (
            self.rows(rows, columns, matrix, mask, real_rows),
            self.columns(columns, rows, matrix.mT, transposed, real_columns),
        )


class MatNetLayers(nn.ModuleList):
    """A stack of :class:`MatNetLayer`.

    Args:
        num_layers: Layers.
        args: See :class:`MatNetBlock`.
        kwargs: See :class:`MatNetBlock`.
    """

    def __init__(self, num_layers: int, *args: Any, **kwargs: Any) -> None:
        check_at_least(1, num_layers=num_layers)
        super().__init__(MatNetLayer(*args, **kwargs) for _ in range(num_layers))

    def forward(
        self, rows: Tensor, columns: Tensor, *matrix: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Rows and columns after all layers; arguments as for :class:`MatNetLayer`."""
        for layer in self:
            rows, columns = layer(rows, columns, *matrix)
        return rows, columns
