"""The policy of a search: decodes from known embeddings, and follows the best solution so far."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rl4co.decoding.strategies import DecodeType, DecodingStrategy
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.zoo.eas.decoder import AdaptedDecoder
from rl4co.models.zoo.eas.sampling import ImitatingSampling


class AdaptedPolicy(ConstructivePolicy):
    """A pretrained policy with an adapted decoder; called with the decoder's cache as `hidden`.

    Args:
        policy: The policy whose settings to use.
        decoder: Its decoder, adapted.
    """

    decoder: AdaptedDecoder

    def __init__(self, policy: ConstructivePolicy, decoder: AdaptedDecoder) -> None:
        super().__init__(
            nn.Identity(),
            decoder,
            policy.env_name,
            temperature=policy.temperature,
            tanh_clipping=policy.tanh_clipping,
            mask_logits=policy.mask_logits,
            replay_chunk=policy.replay_chunk,
            check_nan=policy.check_nan,
        )

    def resolve_strategy(
        self,
        phase: str,
        decode_type: DecodeType | None,
        actions: Tensor | None,
        batch: int,
        settings: Mapping[str, Any],
    ) -> DecodingStrategy:
        """Sampling that imitates, where `instances` (and `incumbent`) say so."""
        search = {key: settings[key] for key in ("instances", "incumbent") if key in settings}
        options = {key: value for key, value in settings.items() if key not in search}
        plain = super().resolve_strategy(phase, decode_type, actions, batch, options)
        if not search:
            return plain
        return ImitatingSampling(
            **_fields(plain), batch=search["instances"], incumbent=search.get("incumbent")
        )


def _fields(strategy: DecodingStrategy) -> dict[str, Any]:
    return {field.name: getattr(strategy, field.name) for field in dataclasses.fields(strategy)}
