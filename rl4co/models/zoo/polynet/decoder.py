"""Decoder of PolyNet: the Attention Model's, with layers that know which strategy they follow."""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.models.embeddings import LinearDynamicEmbedding
from rl4co.models.zoo.am import AttentionModelDecoder, DecoderCache

#: State key of the strategy that a solution follows, `[B, S]`.
STRATEGY = "strategy"


@dataclasses.dataclass
class PolyNetCache(DecoderCache):
    """What is computed once per instance, or once for all of them.

    Attributes:
        strategy_key: Logit keys with the second layer folded in `[B, N, P]`.
        first_weight: First layer with the output projection folded in `[P, D]`.
        first_bias: What strategies add to the first layer `[k, P]`.
    """

    strategy_key: Tensor
    first_weight: Tensor
    first_bias: Tensor


class PolyNetDecoder(AttentionModelDecoder):
    """Pointer decoder with k strategies.

    $$z_t = (g_t + p_t)^\\top K^\\ell / \\sqrt D, \\qquad
      p_t = W_2 \\, \\mathrm{ReLU}(W_1 [g_t, v_s] + b_1) + b_2, \\qquad
      g_t = W_o \\, \\mathrm{MHA}(q_t, K^g, V^g, M_t)$$

    The strategy s of a solution has the binary vector $v_s$, the digits of its number. A state may
    bring the strategies along under the key "strategy"; otherwise solution s of each instance
    follows strategy s modulo k. Output projection and second layer are folded into their
    neighbours, so a step multiplies by neither.

    Args:
        k: Number of strategies.
        embed_dim: Embedding size D.
        poly_layer_dim: Width P of the layers.
        kwargs: See :class:`AttentionModelDecoder`.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    binary_vectors: Tensor

    def __init__(
        self, k: int = 128, embed_dim: int = 128, poly_layer_dim: int = 256, **kwargs: Any
    ) -> None:
        super().__init__(embed_dim, **kwargs)
        if k < 1 or poly_layer_dim < 1:
            raise ConfigError(
                f"expected k and poly_layer_dim of at least 1, got {k} and {poly_layer_dim}"
            )
        dynamic = self.dynamic_embedding
        if dynamic is not None and not isinstance(dynamic, LinearDynamicEmbedding):
            raise UnsupportedError(
                "expected a LinearDynamicEmbedding or none for PolyNet, got "
                f"{type(dynamic).__name__}"
            )
        self.k = k
        num_digits = (k - 1).bit_length()
        shifts = torch.arange(num_digits - 1, -1, -1)  # the most significant digit first
        digits = (torch.arange(k).unsqueeze(-1) >> shifts) & 1  # [k, digits]
        self.register_buffer("binary_vectors", digits.float(), persistent=False)
        self.poly_layer_1 = nn.Linear(embed_dim + num_digits, poly_layer_dim)
        self.poly_layer_2 = nn.Linear(poly_layer_dim, embed_dim)

    def silence_strategies_(self) -> None:
        """Makes all strategies add nothing, in place: the decoder is the Attention Model's."""
        nn.init.zeros_(self.poly_layer_2.weight)
        nn.init.zeros_(self.poly_layer_2.bias)

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys of the embeddings, and the strategy."""
        keys = super().replay_keys
        return None if keys is None else (*keys, STRATEGY)

    def start_memory(self, state: Mapping[str, Tensor], cache: Any) -> dict[str, Tensor]:
        """Strategies `[B, S]`, unless the state has them already."""
        if STRATEGY in state:
            return {}
        mask = state["action_mask"]
        strategies = torch.arange(mask.shape[1], device=mask.device) % self.k
        return {STRATEGY: strategies.expand(mask.shape[:2])}

    def prepare(
        self, hidden: Tensor | tuple[Tensor, Tensor], state: Mapping[str, Tensor]
    ) -> PolyNetCache:
        """Projects the node embeddings `[B, N, D]` for all steps to come.

        MatNet's encoder gives two of them: rows, to come from, and columns, to go to.
        """
        rows = hidden[0] if isinstance(hidden, tuple) else None
        hidden = hidden[1] if isinstance(hidden, tuple) else hidden
        cache = super().prepare(hidden, state)
        if rows is not None:
            cache = dataclasses.replace(cache, context=self._prepare_context(rows))
        dim, first, output = hidden.shape[-1], self.poly_layer_1, self.pointer.project_out
        from_glimpse, from_strategy = first.weight[:, :dim], first.weight[:, dim:]
        first_bias = F.linear(self.binary_vectors, from_strategy, first.bias)  # [k, P]
        if output.bias is not None:
            first_bias = first_bias + from_glimpse @ output.bias
        strategy_key, score = self._strategy_keys(hidden)
        bias = score if cache.folded_bias is None else cache.folded_bias + score
        shared = {field.name: getattr(cache, field.name) for field in dataclasses.fields(cache)}
        return PolyNetCache(
            **{**shared, "folded_bias": bias},
            strategy_key=strategy_key,
            first_weight=from_glimpse @ output.weight,
            first_bias=first_bias,
        )

    def _strategy_keys(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Logit keys with the second layer folded in, and the scores that its bias adds.

        Shapes:
            `[B, N, D]` → `[B, N, P]`, `[B, 1, N]`
        """
        dim, projection = hidden.shape[-1], self.project_node_embeddings
        # [P + 1, D]: rows that turn logit keys into scores of the layer and of its bias.
        second = torch.cat([self.poly_layer_2.weight.t(), self.poly_layer_2.bias.unsqueeze(0)])
        second = second / math.sqrt(dim)
        bias = None if projection.bias is None else second @ projection.bias[2 * dim :]
        both = F.linear(hidden, second @ projection.weight[2 * dim :], bias)  # [B, N, P + 1]
        return both[..., :-1], both[..., -1].unsqueeze(1)

    def forward(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]`, neither clipped nor masked."""
        assert isinstance(cache, PolyNetCache)
        query, mask = self._query(state, cache), state["action_mask"]
        keys = cache.glimpse_key, cache.glimpse_value
        if not isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            heads = self.pointer.glimpse(query, *keys, mask)  # [B, Q, D]
            layer = self._first_layer(heads, state[STRATEGY], cache)
            return self._scores(heads, layer, cache)
        x = self.dynamic_embedding.features(state)  # [B, Q, N]
        w_key, w_value, w_logit = self.dynamic_embedding.weights()  # [D] each
        heads = self.pointer.changed_glimpse(query, *keys, mask, (x, w_key, w_value))
        layer = self._first_layer(heads, state[STRATEGY], cache)
        # What all queries would score a node whose logit key is w_logit.
        slope = heads @ self.pointer.fold_output(w_logit)  # [B, Q]
        scaled = w_logit / math.sqrt(len(w_logit))
        slope = (
            slope + layer @ (scaled @ self.poly_layer_2.weight) + scaled @ self.poly_layer_2.bias
        )
        bias = self.pointer.fold_bias(w_logit)
        slope = slope if bias is None else slope + bias
        return torch.addcmul(self._scores(heads, layer, cache), slope.unsqueeze(-1), x)

    def annotate(
        self, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits; a record of so many solutions would not pay."""
        return self(state, cache), {}

    def _first_layer(self, heads: Tensor, strategy: Tensor, cache: PolyNetCache) -> Tensor:
        """Output of the first layer after its ReLU: `[B, Q, D], [B, Q]` → `[B, Q, P]`."""
        layer = F.linear(heads, cache.first_weight)
        return layer.add_(F.embedding(strategy, cache.first_bias)).relu_()

    def _scores(self, heads: Tensor, layer: Tensor, cache: PolyNetCache) -> Tensor:
        """Scores `[B, Q, N]` of glimpse and layer together."""
        scores = torch.bmm(heads, cache.folded_key.mT)
        scores = torch.baddbmm(scores, layer, cache.strategy_key.mT)
        return scores if cache.folded_bias is None else scores + cache.folded_bias
