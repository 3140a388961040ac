"""Encoders, embeddings and actors of job shops with the published arguments.

In the published package every part has a `scaling_factor`; here the encoder has it, by default that
of its init embedding. These encoders return tensors, which published notebooks unpack; the decoders
of the library accept both.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.models.zoo.l2d.actors import PointerActor
from rl4co.models.zoo.l2d.encoder import (
    HGNNEncoder,
    MatNetShopEncoder,
    ShopEncoder,
    ShopInitEmbedding,
)


class _TensorsEncoder(ShopEncoder):
    """Returns operations `[B, O, D]`, or these and machines `[B, M, D]`, instead of a record."""

    def forward(  # type: ignore[override]
        self, td: Mapping[str, Tensor]
    ) -> tuple[Tensor | tuple[Tensor, Tensor], Tensor]:
        """Embeddings of states with batch `[B]`, and operations before the network."""
        found, init = super().forward(td)
        if found.machines is None:
            return found.operations, init
        return (found.operations, found.machines), init


class FJSPMatNetInitEmbedding(ShopInitEmbedding):
    """Features of operations and machines.

    Args:
        embed_dim: Embedding size D.
        scaling_factor: Unit of time.
    """

    def __init__(self, embed_dim: int, scaling_factor: float = 1000.0) -> None:
        super().__init__(embed_dim)
        self.scaling_factor = scaling_factor


class HetGNNEncoder(_TensorsEncoder, HGNNEncoder):
    """The heterogeneous graph network.

    Args:
        embed_dim: Embedding size D.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        init_embedding: Replaces the linear map of features.
        env_name: Ignored: both shops have the same features.
        scaling_factor: Unit of time; None: that of the init embedding, or each instance's mean
            processing time.
    """

    def __init__(
        self,
        embed_dim: int,
        num_layers: int = 2,
        normalization: str | None = "batch",
        init_embedding: nn.Module | None = None,
        env_name: str = "fjsp",
        scaling_factor: float | None = None,
    ) -> None:
        super().__init__(
            embed_dim,
            num_layers,
            normalization,
            scaling_factor=_unit(scaling_factor, init_embedding),
            init_embedding=init_embedding,
        )


class Encoder(_TensorsEncoder, MatNetShopEncoder):
    """MatNet with self-attention.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        num_layers: Layers.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the feed-forward layers.
        init_embedding: Replaces the linear map of features.
        bias: Whether the attention projections have biases.
    """

    def __init__(
        self,
        embed_dim: int = 256,
        num_heads: int = 16,
        num_layers: int = 5,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        init_embedding: nn.Module | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__(
            embed_dim,
            num_heads,
            num_layers,
            normalization,
            feedforward_hidden,
            bias=bias,
            scaling_factor=_unit(None, init_embedding),
            init_embedding=init_embedding,
        )


class L2DAttnActor(PointerActor):
    """A pointer: machines look at jobs.

    Args:
        embed_dim: Embedding size D.
        num_heads: Attention heads.
        env_name: Ignored: both shops have the same features.
        scaling_factor: Ignored: the decoder has it.
        stepwise: Ignored: the decoder has it.
    """

    def __init__(
        self,
        embed_dim: int = 128,
        num_heads: int = 8,
        env_name: str = "jssp",
        scaling_factor: float = 1000.0,
        stepwise: bool = False,
    ) -> None:
        super().__init__(embed_dim, num_heads)


def _unit(scaling_factor: float | None, init_embedding: nn.Module | None) -> float | None:
    """The unit of time: `scaling_factor`, or that of the init embedding."""
    if scaling_factor is None:
        return getattr(init_embedding, "scaling_factor", None)
    return scaling_factor
