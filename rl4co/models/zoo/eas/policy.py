"""The policy of a search: decodes from known embeddings, and follows the best solution so far."""

from __future__ import annotations

import dataclasses

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.decoding.rollout import Rollout, decode
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.zoo.eas.decoder import AdaptedDecoder
from rl4co.models.zoo.eas.trace import (
    ImitatingSampling,
    RecordedSampling,
    StepTrace,
    known_likelihood,
)


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

    def _strategy(
        self,
        phase: str,
        decode_type: str | None,
        actions: Tensor | None,
        batch: int,
        settings: Mapping[str, Any],
    ) -> DecodingStrategy:
        """Sampling that imitates, where `instances` (and `incumbent`) say so."""
        own = {key: settings[key] for key in ("instances", "incumbent") if key in settings}
        others = {key: value for key, value in settings.items() if key not in own}
        plain = super()._strategy(phase, decode_type, actions, batch, others)
        if not own:
            return plain
        return ImitatingSampling(
            **_fields(plain), batch=own["instances"], incumbent=own.get("incumbent")
        )

    def _decode(
        self,
        env: RL4COEnvBase,
        solutions: State,
        cache: Any,
        strategy: DecodingStrategy,
        starts: Tensor | None,
        with_entropy: bool,
        max_steps: int | None,
        num_steps: int | None,
        narrower: Callable[[Tensor], Any] | None = None,
    ) -> Rollout:
        """Rollout and gradient; by a trace where the decoder allows it (and memory, see
        `replay_chunk`), otherwise by the replay."""
        traceable = isinstance(strategy, ImitatingSampling) and strategy.mask_logits
        if not (traceable and self.decoder.can_trace) or with_entropy or self.replay_chunk:
            return super()._decode(
                env,
                solutions,
                cache,
                strategy,
                starts,
                with_entropy,
                max_steps,
                num_steps,
                narrower,
            )
        trace = StepTrace()
        weights = self.decoder.score_weights(cache)
        decoder = self.decoder.noting(trace, weights)
        with torch.no_grad():
            rollout = decode(
                env,
                solutions,
                lambda state: decoder(state, cache),
                RecordedSampling(**_fields(strategy), trace=trace),
                starts=starts,
                with_log_probs=False,
                max_steps=max_steps,
                num_steps=num_steps,
            )
        # One entry for all steps: they are only ever summed.
        rollout.log_probs = known_likelihood(trace, weights).unsqueeze(-1)  # [R, S, 1]
        return rollout


def _fields(strategy: DecodingStrategy) -> dict[str, Any]:
    return {field.name: getattr(strategy, field.name) for field in dataclasses.fields(strategy)}
