"""The encoder of job shops with the published arguments.

In the published package every part has a `scaling_factor`; here the encoder has it, by default that
of its init embedding. It returns tensors, which published notebooks unpack; the decoders of the
library accept both.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.models.zoo.l2d.encoder import HGNNEncoder


class HetGNNEncoder(HGNNEncoder):
    """The heterogeneous graph network, which returns tensors instead of a record.

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
        if scaling_factor is None:
            scaling_factor = getattr(init_embedding, "scaling_factor", None)
        super().__init__(
            embed_dim,
            num_layers,
            normalization,
            scaling_factor=scaling_factor,
            init_embedding=init_embedding,
        )

    def forward(  # type: ignore[override]
        self, td: Mapping[str, Tensor]
    ) -> tuple[tuple[Tensor, Tensor | None], Tensor]:
        """Operations `[B, O, D]` and machines `[B, M, D]`, and operations before the network."""
        embedded, init = super().forward(td)
        return (embedded.operations, embedded.machines), init
