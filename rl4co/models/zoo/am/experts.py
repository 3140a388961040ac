"""Decoder of the Attention Model with a mixture of experts in place of the output projection.

Paper: Zhou et al., 2024 (MVMoE), https://arxiv.org/abs/2405.01029.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.models.embeddings import LinearDynamicEmbedding
from rl4co.models.nn.mixed_product import DensePart, mixed_product
from rl4co.models.nn.moe import MoE, MoEConfig, spread_weights
from rl4co.models.nn.recorded_attention import (
    PointerRecord,
    attention_to_record,
    recorded_attention,
)
from rl4co.models.zoo.am.decoder import AttentionModelDecoder, DecoderCache


@dataclasses.dataclass
class ExpertsCache(DecoderCache):
    """What is computed once per instance; `folded_key` holds the keys that :meth:`_fold` gave.

    Attributes:
        folded_experts: Logit keys with the experts folded in `[B', E, N, D]`, of the instances that
            use them; None where that is more to compute than it saves.
        noise: Noise of the gate `[B', 1, E]`, or None.
        route: Whether an instance uses the experts `[B, 1, 1]`, and the probability of that
            choice `[B, 1, 1]`; None without hierarchical gating: all use them.
        dense: The instances that do not; None: all use the experts, or (on other devices than a
            CPU) who does may not be looked at.
    """

    folded_experts: Tensor | None
    noise: Tensor | None
    route: tuple[Tensor, Tensor] | None
    dense: DensePart | None


class ExpertsDecoder(AttentionModelDecoder):
    """Pointer decoder with experts.

    $$z_t = \\Big(\\sum_e G(g_t)_e W_e g_t\\Big)^\\top K^\\ell / \\sqrt D, \\qquad
      g_t = \\mathrm{MHA}(q_t, K^g, V^g, M_t)$$

    With hierarchical gating (`light_version`) a second gate $G'$ sends each instance, by its mean
    node embedding, either to the experts or to one dense layer $W$, which is folded into the keys:

    $$G'(\\bar h)_1 \\sum_e G(g_t)_e W_e g_t \\quad\\text{or}\\quad G'(\\bar h)_0 W g_t$$

    The noise of $G$ and the choice of $G'$ are drawn once per instance, so that all of its steps,
    and their replay, are routed in the same way. Out of training there is no noise, and $G'$ takes
    the more likely way.

    Args:
        embed_dim: Embedding size D.
        config: Settings of the experts.
        kwargs: See :class:`AttentionModelDecoder`.
    """

    def __init__(self, embed_dim: int, config: MoEConfig, **kwargs: Any) -> None:
        super().__init__(embed_dim, **kwargs)
        if config.routing_method != "input_choice":
            raise ConfigError(
                f"expected routing_method 'input_choice' in a decoder, got "
                f"{config.routing_method!r}: steps to come cannot be chosen from"
            )
        dynamic = self.dynamic_embedding
        if dynamic is not None and not isinstance(dynamic, LinearDynamicEmbedding):
            raise UnsupportedError(
                "expected a LinearDynamicEmbedding or none beside experts in the decoder, got "
                f"{type(dynamic).__name__}; use moe_kwargs={{'encoder': ...}} alone"
            )
        self.experts = MoE(embed_dim, embed_dim, None, config)
        self.choose_way = nn.Linear(embed_dim, 2, bias=False) if config.light_version else None
        if self.choose_way is None:
            self.pointer.project_out = _NoProjection()  # type: ignore[assignment]

    def prepare(self, hidden: Tensor, state: Mapping[str, Tensor]) -> ExpertsCache:
        """Projects the node embeddings `[B, N, D]` and routes the instances."""
        key, value, logit_key = self.project_node_embeddings(hidden).chunk(3, -1)  # [B, N, D] each
        route = self._route(hidden)
        graph_context = None
        if self.project_fixed_context is not None:
            graph_context = self.project_fixed_context(hidden.mean(1, keepdim=True))
        folded_key = self._fold(logit_key, route)
        dense = _dense_part(folded_key, route)
        noise = self.experts.gate.draw(hidden, len(hidden), 1)  # [B, 1, E]
        if dense is not None and noise is not None:
            noise = noise[dense.others]
        return ExpertsCache(
            context=self._prepare_context(hidden),
            graph_context=graph_context,
            glimpse_key=self.pointer.split_heads(key).contiguous(),
            glimpse_value=self.pointer.split_heads(value).contiguous(),
            folded_key=folded_key,
            folded_bias=None,
            folded_experts=self._fold_experts(
                folded_key if dense is None else folded_key[dense.others]
            ),
            noise=noise,
            route=route,
            dense=dense,
        )

    def _route(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """Hierarchical gating: whether to use the experts, and the probability of the choice."""
        if self.choose_way is None:
            return None
        chances = self.choose_way(hidden.mean(1, keepdim=True)).softmax(-1)  # [B, 1, 2]
        experts = chances[..., 1:]  # [B, 1, 1]
        border = torch.full_like(experts, 0.5)
        if self.training:
            session = self.experts.gate.session
            rng = None if session is None else session.rng
            border = torch.rand(experts.shape, generator=rng, device=hidden.device)
        chosen = experts > border
        return chosen, torch.where(chosen, experts, chances[..., :1])

    def _fold(self, keys: Tensor, route: tuple[Tensor, Tensor] | None) -> Tensor:
        """Keys `[B, M, D]`, scaled, and with the dense layer folded in where it is used."""
        keys = keys / keys.shape[-1] ** 0.5
        if route is None:
            return keys
        to_experts, chance = route
        return torch.where(to_experts, keys, keys @ self.pointer.project_out.weight) * chance

    def _fold_experts(self, keys: Tensor) -> Tensor | None:
        """Keys `[B', N, D]` of every expert `[B', E, N, D]`, if that pays.

        A query then costs E N D products instead of k D D + N D and two copies from and to its
        experts, which cost about as much again.
        """
        config, (num_nodes, dim) = self.experts.config, keys.shape[1:]
        too_many = (config.num_experts - 1) * num_nodes > 2 * config.k * dim
        if too_many or config.out_bias or self.dynamic_embedding is not None:
            return None
        return keys.unsqueeze(1) @ self.experts.weights[0].mT

    def forward(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]`, neither clipped nor masked."""
        assert isinstance(cache, ExpertsCache)
        query, mask = self._query(state, cache), state["action_mask"]
        keys = cache.glimpse_key, cache.glimpse_value
        if isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            x = self.dynamic_embedding.features(state)  # [B, Q, N]
            w_key, w_value, w_logit = self.dynamic_embedding.weights()  # [D] each
            heads = self.pointer.changed_glimpse(query, *keys, mask, (x, w_key, w_value))
            heads = self._mix(heads, cache)
            direction = self._fold(w_logit.expand(len(heads), 1, -1), cache.route)  # [B, 1, D]
            logits = torch.bmm(heads, cache.folded_key.mT)  # [B, Q, N]
            return torch.addcmul(logits, torch.bmm(heads, direction.mT), x)
        record = PointerRecord.from_state(state)
        if record is not None:
            q, inner = self.pointer.split_heads(query), self.pointer._inner_mask(mask)
            heads = recorded_attention(q, *keys, inner, record)
            return self._logits(heads, cache, record.logits)
        return self._logits(self.pointer.glimpse(query, *keys, mask), cache)

    def annotate(
        self, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the pointer's record that spares the replay its forward pass."""
        assert isinstance(cache, ExpertsCache)
        query = self._query(state, cache)
        if self.dynamic_embedding is not None or not self.pointer.can_record(query):
            return self(state, cache), {}
        q, inner = self.pointer.split_heads(query), self.pointer._inner_mask(state["action_mask"])
        heads, log_normaliser = attention_to_record(
            q, cache.glimpse_key, cache.glimpse_value, inner
        )
        heads = heads.transpose(1, 2).reshape(query.shape)  # [B, Q, D]
        logits = self._logits(heads, cache)
        return logits, PointerRecord(heads, logits, log_normaliser).as_state()

    def _logits(self, heads: Tensor, cache: ExpertsCache, known: Tensor | None = None) -> Tensor:
        """Logits `[B, Q, N]` of heads `[B, Q, D]`, which may be known already."""
        if cache.folded_experts is None:
            return torch.bmm(self._mix(heads, cache), cache.folded_key.mT)
        gate, dense = self.experts.gate, cache.dense
        clean, spread = gate.scores(heads)
        if dense is not None:
            clean, spread = clean[dense.others], None if spread is None else spread[dense.others]
        chosen = gate.choose(clean, spread, cache.noise)
        gates = spread_weights(*chosen, gate.num_experts).to(heads.dtype)  # [B', Q, E]
        if cache.route is None or dense is not None:
            return mixed_product(heads, cache.folded_experts, gates, known, dense)
        mixed = mixed_product(heads, cache.folded_experts, gates)
        return torch.where(cache.route[0], mixed, torch.bmm(heads, cache.folded_key.mT))

    def _mix(self, heads: Tensor, cache: ExpertsCache) -> Tensor:
        """Heads `[B, Q, D]` after the experts; those for the dense layer stay as they are."""
        if cache.dense is not None:
            rows = cache.dense.others
            mixed = self.experts(heads[rows], cache.noise)
            return heads.index_copy(0, rows, mixed.to(heads.dtype))
        mixed = self.experts(heads, cache.noise)
        return mixed if cache.route is None else torch.where(cache.route[0], mixed, heads)


def _dense_part(keys: Tensor, route: tuple[Tensor, Tensor] | None) -> DensePart | None:
    """Instances that use the dense layer; None where that takes a look at the device."""
    if route is None or keys.device.type != "cpu":
        return None
    chosen = route[0].flatten()  # [B]
    rows = (~chosen).nonzero().squeeze(-1)
    return DensePart(keys[rows], rows, chosen.nonzero().squeeze(-1))


class _NoProjection(nn.Identity):
    """Where the experts are all there is."""

    bias = None
