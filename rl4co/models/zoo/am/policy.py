"""Policy of the Attention Model (Kool et al., 2019).

Paper: https://arxiv.org/abs/1803.08475. Original code: wouterkool/attention-learn-to-route.
"""

from __future__ import annotations

import functools

from collections.abc import Callable, Mapping
from typing import Any

from tensordict import TensorDictBase
from torch import nn

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.decoding.strategies import DecodeType
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.nn.attention import AttentionFn
from rl4co.models.nn.moe import Gate, MoEConfig, routing_session
from rl4co.models.policies.autoregressive import AutoregressivePolicy
from rl4co.models.zoo.am.decoder import AttentionModelDecoder
from rl4co.models.zoo.am.encoder import AttentionModelEncoder
from rl4co.models.zoo.am.experts import ExpertsDecoder
from rl4co.models.zoo.am.refined import RefinedDecoder


class AttentionModelPolicy(AutoregressivePolicy):
    """Attention Model: graph attention encoder and pointer decoder.

    Every part is chosen from `env_name` or replaced by an argument.

    Args:
        encoder: Replaces the encoder.
        decoder: Replaces the decoder.
        embed_dim: Embedding size D.
        num_encoder_layers: Encoder blocks.
        num_heads: Attention heads.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the encoder's feed-forward layers.
        env_name: Environment whose embeddings to use.
        encoder_network: Replaces the encoder's blocks.
        init_embedding: Replaces the init embedding.
        context_embedding: Replaces the context embedding.
        dynamic_embedding: Replaces the dynamic embedding.
        use_graph_context: Whether the mean node embedding enters the query.
        linear_bias_decoder: Whether the decoder's projections have biases.
        sdpa_fn: Attention function of encoder and decoder.
        sdpa_fn_encoder: Attention function of the encoder alone.
        sdpa_fn_decoder: Attention function of the decoder alone.
        mask_inner: Whether the glimpse attends to allowed nodes only.
        out_bias_pointer_attn: Whether the pointer's output projection has a bias.
        check_nan: Whether NaN logits raise an error (one look at each solution's likelihood).
        temperature: Softmax temperature.
        tanh_clipping: Bound of the tanh clipping of logits.
        mask_logits: Whether forbidden actions are masked.
        train_decode_type: Decode type of the training phase.
        val_decode_type: Decode type of the validation phase.
        test_decode_type: Decode type of the test phase.
        replay_chunk: Steps per piece of the replay in training (None = all at once).
        attention_bias: Whether the encoder's attention projections have biases.
        moe_kwargs: Mixtures of experts (Zhou et al., 2024) in place of the "encoder"'s feed-forward
            layers and of the "decoder"'s output projection: settings of :class:`MoEConfig` for
            each of the two, or None.
        refinement_hidden: Width of the feed-forward layer that refines the decoder's glimpse with
            the last node and the features of the state (Huang et al., 2025); None: no refinement.
        distance_bias: Whether the decoder subtracts the logarithm of the distance to each node from
            its logit.
    """

    def __init__(
        self,
        encoder: nn.Module | None = None,
        decoder: AttentionModelDecoder | None = None,
        embed_dim: int = 128,
        num_encoder_layers: int = 3,
        num_heads: int = 8,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        env_name: str = "tsp",
        encoder_network: nn.Module | None = None,
        init_embedding: nn.Module | None = None,
        context_embedding: nn.Module | None = None,
        dynamic_embedding: nn.Module | None = None,
        use_graph_context: bool = True,
        linear_bias_decoder: bool = False,
        sdpa_fn: AttentionFn | None = None,
        sdpa_fn_encoder: AttentionFn | None = None,
        sdpa_fn_decoder: AttentionFn | None = None,
        mask_inner: bool = True,
        out_bias_pointer_attn: bool = False,
        check_nan: bool = True,
        temperature: float = 1.0,
        tanh_clipping: float = 10.0,
        mask_logits: bool = True,
        train_decode_type: DecodeType = "sampling",
        val_decode_type: DecodeType = "greedy",
        test_decode_type: DecodeType = "greedy",
        replay_chunk: int | None = None,
        attention_bias: bool = True,
        moe_kwargs: Mapping[str, Mapping[str, Any] | None] | None = None,
        refinement_hidden: int | None = None,
        distance_bias: bool = False,
    ) -> None:
        encoder_moe, decoder_moe = _parse_experts(moe_kwargs, out_bias_pointer_attn)
        make_decoder: Callable[..., AttentionModelDecoder] = functools.partial(
            AttentionModelDecoder, out_bias_pointer_attn=out_bias_pointer_attn
        )
        is_refined = refinement_hidden is not None or distance_bias
        if decoder_moe is not None and is_refined:
            raise ConfigError(
                "expected experts in the decoder, or refinement_hidden and distance_bias, got both"
            )
        if decoder_moe is not None:
            make_decoder = functools.partial(ExpertsDecoder, config=decoder_moe)
        elif is_refined:
            make_decoder = functools.partial(
                RefinedDecoder,
                out_bias_pointer_attn=out_bias_pointer_attn,
                refinement_hidden=refinement_hidden,
                distance_bias=distance_bias,
            )
        super().__init__(
            encoder=AttentionModelEncoder(
                embed_dim=embed_dim,
                init_embedding=init_embedding,
                env_name=env_name,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
                net=encoder_network,
                sdpa_fn=sdpa_fn_encoder or sdpa_fn,
                bias=attention_bias,
                moe=encoder_moe,
            )
            if encoder is None
            else encoder,
            decoder=make_decoder(
                embed_dim=embed_dim,
                num_heads=num_heads,
                env_name=env_name,
                context_embedding=context_embedding,
                dynamic_embedding=dynamic_embedding,
                mask_inner=mask_inner,
                linear_bias=linear_bias_decoder,
                use_graph_context=use_graph_context,
                sdpa_fn=sdpa_fn_decoder or sdpa_fn,
            )
            if decoder is None
            else decoder,
            env_name=env_name,
            temperature=temperature,
            tanh_clipping=tanh_clipping,
            mask_logits=mask_logits,
            train_decode_type=train_decode_type,
            val_decode_type=val_decode_type,
            test_decode_type=test_decode_type,
            replay_chunk=replay_chunk,
            check_nan=check_nan,
        )
        self.has_experts = any(isinstance(module, Gate) for module in self.modules())

    def forward(
        self, td: TensorDictBase, env: RL4COEnvBase | str | None = None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Constructs solutions, see :meth:`ConstructivePolicy.forward`.

        In training, experts draw their noise from `rng`, and the output also has `auxiliary_loss`,
        the loss that balances them.
        """
        if not self.has_experts:
            return super().forward(td, env, *args, **kwargs)
        with routing_session(self, kwargs.get("rng")) as session:
            out = super().forward(td, env, *args, **kwargs)
        loss = session.loss()
        return out if loss is None else {**out, "auxiliary_loss": loss}


def _parse_experts(
    moe_kwargs: Mapping[str, Mapping[str, Any] | None] | None, out_bias: bool
) -> tuple[MoEConfig | None, MoEConfig | None]:
    """Settings of the experts in encoder and decoder."""
    by_part = moe_kwargs or {}
    for part in by_part:
        if part not in ("encoder", "decoder"):
            raise UnknownNameError("part with experts", part, ("encoder", "decoder"))
    decoder = MoEConfig.parse(by_part.get("decoder"), out_bias=out_bias)
    return MoEConfig.parse(by_part.get("encoder")), decoder
