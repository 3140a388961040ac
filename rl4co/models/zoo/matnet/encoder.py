"""Encoder of MatNet: rows and columns of a matrix attend to each other.

Paper: https://arxiv.org/abs/2106.11113. Original code: yd-kwon/MatNet.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.nn.matnet import MatNetLayers
from rl4co.models.policies.autoregressive import AutoregressiveEncoder

#: Distance from an integer below which a sum has no digits left (rounding in float32).
_DIGITS = 1e-2
#: Multiplier of Knuth's multiplicative hash for 32 bits.
_HASH = 2654435761


class MatrixInitEmbedding(nn.Module):
    """Rows start as zeros, each column as a one-hot vector with a distinct position.

    The columns of an instance have different positions, so that the rows can tell them apart; the
    position itself has no meaning. Kwon et al. draw the positions at random in every pass. Here the
    entries determine them: as random across instances, but the same whenever an instance occurs,
    alone or in any batch, in a rollout or in its replay.

    Args:
        embed_dim: Embedding size D; at least the number of columns.
        key: State key of the matrix.

    Shapes:
        state with matrix `[B, R, C]` → rows `[B, R, D]`, columns `[B, C, D]`, matrix `[B, R, C]`
    """

    def __init__(self, embed_dim: int, key: str = "cost_matrix") -> None:
        super().__init__()
        self.embed_dim, self.key = embed_dim, key

    def forward(self, state: Mapping[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings before the first layer."""
        matrix = state[self.key]
        batch, num_rows, num_columns = matrix.shape
        if num_columns > self.embed_dim:
            raise ConfigError(
                f"expected at most embed_dim = {self.embed_dim} columns, one place for each, got "
                f"{num_columns}; use a larger embed_dim"
            )
        rows = matrix.new_zeros(batch, num_rows, self.embed_dim)
        columns = F.one_hot(self.places(matrix), self.embed_dim).to(matrix.dtype)  # [B, C, D]
        return rows, columns, matrix

    def places(self, matrix: Tensor) -> Tensor:
        """A different place for each column: `[B, R, C]` → `[B, C]`."""
        # The digits after the third of a sum are as good as random ...
        sums = 1e3 * matrix.sum(-2)  # [B, C]
        draw = sums.frac()
        # ... except where the entries have no more than three; there the sums are hashed.
        has_digits = ((sums - sums.round()).abs() > _DIGITS).any(-1, keepdim=True)  # [B, 1]
        hashed = (sums.round().long() * _HASH).remainder(1 << 32).to(draw.dtype) / (1 << 32)
        if matrix.shape[-1] > 1:
            draw = torch.where(has_digits, draw, hashed)
        rank = draw.argsort(dim=-1, stable=True).argsort(-1)
        shift = (draw.mean(-1, keepdim=True).frac() * 1e3 % 1 * self.embed_dim).long()  # [B, 1]
        return (rank + shift) % self.embed_dim


class MatNetEncoder(AutoregressiveEncoder):
    """A stack of MatNet layers.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the feed-forward layers.
        init_embedding: State → rows, columns, matrix (default: :class:`MatrixInitEmbedding`).
        bias: Whether the attention projections have biases.
        mask_non_neighbors: Whether entries that are zero are not attended to.
        self_attention: Whether rows also attend to rows, and columns to columns, as in the
            self-plus-cross version of the paper's scheduling policies.

    Shapes:
        state with batch `[B]` → (rows `[B, R, D]`, columns `[B, C, D]`), rows before the layers
    """

    def __init__(
        self,
        embed_dim: int = 256,
        num_heads: int = 16,
        num_layers: int = 5,
        normalization: str | None = "instance",
        feedforward_hidden: int = 512,
        init_embedding: nn.Module | None = None,
        bias: bool = False,
        mask_non_neighbors: bool = False,
        self_attention: bool = False,
    ) -> None:
        super().__init__()
        self.init_embedding = init_embedding or MatrixInitEmbedding(embed_dim)
        self.mask_non_neighbors = mask_non_neighbors
        self.layers = MatNetLayers(
            num_layers,
            embed_dim,
            num_heads,
            feedforward_hidden,
            normalization,
            bias,
            self_attention,
        )

    def forward(self, td: Mapping[str, Tensor]) -> tuple[tuple[Tensor, Tensor], Tensor]:
        """Embeddings of rows and columns, and what the rows began with."""
        rows, columns, matrix = self.init_embedding(td)
        initial = rows
        mask = matrix != 0 if self.mask_non_neighbors else None
        return self.layers(rows, columns, matrix, mask), initial
