"""Policy of PolyNet: an Attention Model with many strategies (Hottung et al., 2025).

Paper: https://arxiv.org/abs/2402.14048.
"""

from __future__ import annotations

import inspect

from typing import Any

from torch import nn

from rl4co.core.errors import ConfigError, UnknownNameError, UnsupportedError
from rl4co.decoding.strategies import DecodeType
from rl4co.models.nn.attention import AttentionFn
from rl4co.models.zoo.am import AttentionModelDecoder, AttentionModelPolicy
from rl4co.models.zoo.matnet import MatNetEncoder
from rl4co.models.zoo.polynet.decoder import PolyNetDecoder

_ENCODERS = ("AM", "MatNet")
#: Arguments that only the Attention Model's encoder has.
_AM_ONLY = {"encoder", "encoder_network", "sdpa_fn_encoder", "attention_bias"}


class PolyNetPolicy(AttentionModelPolicy):
    """Encoder of the Attention Model or of MatNet, and a decoder with k strategies.

    Several solutions of an instance follow its strategies in order; a single one (and a beam)
    follows the first. A state may choose otherwise: `td["strategy"]`, one number per instance.

    Args:
        k: Number of strategies.
        encoder_type: "AM", or "MatNet" for problems that are defined by a matrix.
        poly_layer_dim: Width of the strategies' layers.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        k: int = 128,
        encoder_type: str = "AM",
        embed_dim: int = 128,
        num_encoder_layers: int = 6,
        num_heads: int = 8,
        normalization: str | None = "instance",
        feedforward_hidden: int = 512,
        init_embedding: nn.Module | None = None,
        env_name: str = "tsp",
        poly_layer_dim: int = 256,
        context_embedding: nn.Module | None = None,
        dynamic_embedding: nn.Module | None = None,
        use_graph_context: bool = False,
        linear_bias_decoder: bool = False,
        sdpa_fn: AttentionFn | None = None,
        sdpa_fn_decoder: AttentionFn | None = None,
        mask_inner: bool = True,
        out_bias_pointer_attn: bool = False,
        val_decode_type: DecodeType = "sampling",
        test_decode_type: DecodeType = "sampling",
        **kwargs: Any,
    ) -> None:
        if encoder_type not in _ENCODERS:
            raise UnknownNameError("encoder type", encoder_type, _ENCODERS)
        encoder = None
        if encoder_type == "MatNet":
            if useless := sorted(_AM_ONLY & kwargs.keys()):
                raise ConfigError(
                    f"expected settings of MatNet's encoder, got {', '.join(useless)}; these are "
                    "for encoder_type='AM'"
                )
            encoder = MatNetEncoder(
                embed_dim=embed_dim,
                num_heads=num_heads,
                num_layers=num_encoder_layers,
                normalization=normalization,
                feedforward_hidden=feedforward_hidden,
                init_embedding=init_embedding,
            )
        if kwargs.get("moe_kwargs"):
            raise UnsupportedError("expected PolyNet without mixtures of experts, got moe_kwargs")
        super().__init__(
            encoder=encoder,
            decoder=PolyNetDecoder(
                k=k,
                embed_dim=embed_dim,
                poly_layer_dim=poly_layer_dim,
                num_heads=num_heads,
                env_name=env_name,
                context_embedding=context_embedding,
                dynamic_embedding=dynamic_embedding,
                mask_inner=mask_inner,
                out_bias_pointer_attn=out_bias_pointer_attn,
                linear_bias=linear_bias_decoder,
                use_graph_context=use_graph_context,
                sdpa_fn=sdpa_fn_decoder or sdpa_fn,
            ),
            embed_dim=embed_dim,
            num_encoder_layers=num_encoder_layers,
            num_heads=num_heads,
            normalization=normalization,
            feedforward_hidden=feedforward_hidden,
            init_embedding=init_embedding,
            env_name=env_name,
            sdpa_fn=sdpa_fn,
            val_decode_type=val_decode_type,
            test_decode_type=test_decode_type,
            **kwargs,
        )
        self.k = k

    @classmethod
    def from_base(cls, base: nn.Module, **settings: Any) -> PolyNetPolicy:
        """A policy that begins where an Attention Model (or POMO's policy) ended.

        It has the base's settings and weights; its strategies add nothing yet, so that it computes
        what the base does.

        Args:
            base: A trained :class:`AttentionModelPolicy`.
            settings: Arguments that replace the base's (those of the network must fit its weights).
        """
        plain = isinstance(base, AttentionModelPolicy) and not base.has_experts
        if not plain or type(base.decoder) is not AttentionModelDecoder:
            raise UnsupportedError(
                "expected the policy of an Attention Model or of POMO to start from, got "
                f"{type(base).__name__} with {type(getattr(base, 'decoder', None)).__name__}"
            )
        assert isinstance(base, AttentionModelPolicy)
        parameters = inspect.signature(AttentionModelPolicy.__init__).parameters
        defaults = {
            name: each.default for name, each in parameters.items() if name not in _REPLACED
        }
        recorded = {name: value for name, value in base._init_arguments.items() if name in defaults}
        policy = cls(**{**defaults, **recorded, **settings})
        policy._take_weights(base)
        assert isinstance(policy.decoder, PolyNetDecoder)
        policy.decoder.zero_strategies_()
        return policy

    def _take_weights(self, base: nn.Module) -> None:
        """Copies the weights of encoder and decoder; all but those of the strategies must fit."""
        parts = ("encoder.", "decoder.")
        base_weights = {key: v for key, v in base.state_dict().items() if key.startswith(parts)}
        shared_weights = {
            key: v for key, v in self.state_dict().items() if ".poly_layer_" not in key
        }
        wrong = sorted(
            key
            for key in shared_weights.keys() | base_weights.keys()
            if key not in shared_weights
            or key not in base_weights
            or shared_weights[key].shape != base_weights[key].shape
        )
        if wrong:
            raise ConfigError(
                f"expected settings that fit the weights of the base, got others: "
                f"{', '.join(wrong[:4])} missing, unknown or of another shape; leave out the "
                "settings of the network"
            )
        self.load_state_dict(base_weights, strict=False)


#: Arguments that PolyNet's policy does not take over from its base.
_REPLACED = (
    "self",
    "encoder",
    "decoder",
    "train_decode_type",
    "val_decode_type",
    "test_decode_type",
)
