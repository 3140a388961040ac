"""Policy of MatNet for routing problems that are defined by a matrix (Kwon et al., 2021)."""

from __future__ import annotations

from typing import Any

from torch import nn

from rl4co.models.policies.autoregressive import AutoregressivePolicy
from rl4co.models.zoo.matnet.decoder import MatNetDecoder
from rl4co.models.zoo.matnet.encoder import MatNetEncoder


class MatNetPolicy(AutoregressivePolicy):
    """MatNet: rows and columns of a matrix encode each other, a pointer walks through them.

    Args:
        encoder: Replaces the encoder.
        decoder: Replaces the decoder.
        env_name: Environment whose instances have a `cost_matrix`.
        embed_dim: Embedding size D; at least the number of nodes.
        num_encoder_layers: Encoder layers.
        num_heads: Attention heads.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the encoder's feed-forward layers.
        init_embedding: Replaces the init embedding.
        context_embedding: Replaces the context embedding.
        use_graph_context: Whether the mean column embedding enters the query.
        bias: Whether the encoder's attention projections have biases.
        tanh_clipping: Bound of the tanh clipping of logits.
        out_bias_pointer_attn: Whether the output projection of the pointer has a bias, as in the
            original code.
        kwargs: See :class:`ConstructivePolicy`.
    """

    def __init__(
        self,
        encoder: nn.Module | None = None,
        decoder: MatNetDecoder | None = None,
        env_name: str = "atsp",
        embed_dim: int = 256,
        num_encoder_layers: int = 5,
        num_heads: int = 16,
        normalization: str | None = "instance",
        feedforward_hidden: int = 512,
        init_embedding: nn.Module | None = None,
        context_embedding: nn.Module | None = None,
        use_graph_context: bool = False,
        bias: bool = False,
        tanh_clipping: float = 10.0,
        out_bias_pointer_attn: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            encoder=encoder
            or MatNetEncoder(
                embed_dim=embed_dim,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
                init_embedding=init_embedding,
                bias=bias,
            ),
            decoder=decoder
            or MatNetDecoder(
                embed_dim=embed_dim,
                num_heads=num_heads,
                env_name=env_name,
                context_embedding=context_embedding,
                use_graph_context=use_graph_context,
                out_bias_pointer_attn=out_bias_pointer_attn,
            ),
            env_name=env_name,
            tanh_clipping=tanh_clipping,
            **kwargs,
        )
