"""Decoder of the Attention Model: a context query points at nodes."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn
from typing_extensions import override

from rl4co import kernels
from rl4co.core.adapters import adapt
from rl4co.core.errors import UnsupportedError
from rl4co.decoding.rollout import SUPPORT
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import State
from rl4co.models.embeddings import EmbeddingConfig, LinearDynamicEmbedding, make_embeddings
from rl4co.models.nn.attention import AttentionFn, PointerAttention, split_heads
from rl4co.models.policies.autoregressive import AutoregressiveDecoder


@dataclasses.dataclass
class DecoderCache:
    """What is computed once per instance.

    Attributes:
        context: What the context embedding prepared from the node embeddings.
        graph_context: Projected mean of the node embeddings `[B, 1, D]`, or None.
        glimpse_key: `[B, H, N, d]`.
        glimpse_value: `[B, H, N, d]`.
        logit_key: `[B, N, D]`.
        folded_key: Logit keys with the output projection folded in `[B, N, D]`, or None, see
            :meth:`PointerAttention.fold`.
    """

    context: Any
    graph_context: Tensor | None
    glimpse_key: Tensor
    glimpse_value: Tensor
    logit_key: Tensor
    folded_key: Tensor | None


@kernels.standard
class AttentionModelDecoder(AutoregressiveDecoder):
    """Pointer decoder.

    $$q_t = W_f \\bar h + \\mathrm{Context}(h, s_t), \\qquad
      z_t = \\mathrm{Pointer}(q_t, K^g, V^g, K^\\ell, M_t)$$

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads of the glimpse.
        env_name: Environment whose embeddings to use.
        context_embedding: State → query (default: that of `env_name`).
        dynamic_embedding: State → changes of keys and values (default: that of `env_name`, or
            none with a custom context embedding).
        mask_inner: Whether the glimpse attends to allowed nodes only.
        out_bias_pointer_attn: Whether the pointer's output projection has a bias.
        linear_bias: Whether the projections of the node embeddings have biases.
        use_graph_context: Whether the mean of the node embeddings enters the query.
        sdpa_fn: Attention function of the glimpse.
        pointer: Replaces the pointer attention.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    prepares_by_instance = True

    def __init__(
        self,
        embed_dim: int = 128,
        num_heads: int = 8,
        env_name: str = "tsp",
        context_embedding: nn.Module | None = None,
        dynamic_embedding: nn.Module | None = None,
        mask_inner: bool = True,
        out_bias_pointer_attn: bool = False,
        linear_bias: bool = False,
        use_graph_context: bool = True,
        sdpa_fn: AttentionFn | None = None,
        pointer: PointerAttention | None = None,
    ) -> None:
        super().__init__()
        if context_embedding is None:
            defaults = make_embeddings(env_name, EmbeddingConfig(embed_dim))
            context_embedding = defaults.context
            dynamic_embedding = dynamic_embedding or defaults.dynamic
        self.context_embedding = adapt("context_embedding", context_embedding)
        self.dynamic_embedding = adapt("dynamic_embedding", dynamic_embedding)
        self.pointer = pointer or PointerAttention(
            embed_dim, num_heads, mask_inner, out_bias_pointer_attn, sdpa_fn
        )
        # Glimpse keys, glimpse values and logit keys in one projection.
        self.project_node_embeddings = nn.Linear(embed_dim, 3 * embed_dim, bias=linear_bias)
        self.project_fixed_context = (
            nn.Linear(embed_dim, embed_dim, bias=linear_bias) if use_graph_context else None
        )

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys of the embeddings; None if keys and values change from step to step."""
        keys: tuple[str, ...] | None = getattr(self.context_embedding, "state_keys", None)
        if self.dynamic_embedding is None or keys is None:
            return keys
        if isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            return (*keys, *self.dynamic_embedding.state_keys)
        return None

    def prepare(
        self, hidden: Tensor | tuple[Tensor, Tensor], state: Mapping[str, Tensor]
    ) -> DecoderCache:
        """Projects the node embeddings `[B, N, D]` for all steps to come.

        MatNet's encoder returns two of them: rows, to come from, and columns, to go to.
        """
        rows, columns = hidden if isinstance(hidden, tuple) else (hidden, hidden)
        key, value, logit_key = self.project_node_embeddings(columns).chunk(3, -1)  # [B, N, D]
        graph_context = None
        if self.project_fixed_context is not None:
            graph_context = self.project_fixed_context(columns.mean(1, keepdim=True))
        # A plain module as context embedding gets the node embeddings themselves.
        prepare_context = getattr(self.context_embedding, "prepare", None)
        return DecoderCache(
            context=rows if prepare_context is None else prepare_context(rows),
            graph_context=graph_context,
            glimpse_key=split_heads(key, self.pointer.num_heads),
            glimpse_value=split_heads(value, self.pointer.num_heads),
            logit_key=logit_key,
            folded_key=self.pointer.fold(logit_key) if self.dynamic_embedding is None else None,
        )

    def forward(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]`, neither clipped nor masked."""
        return self.point(self._query(state, cache), state, cache)

    def is_fused(self, cache: DecoderCache, strategy: DecodingStrategy) -> bool:
        """Whether the fused kernel computes log-probabilities: only if nothing was changed."""
        return (
            cache.folded_key is not None
            and kernels.is_standard(self)
            and strategy.is_softmax
            and kernels.pointer.applies(cache.folded_key, differentiable=True)
        )

    def log_probs(
        self,
        cache: DecoderCache,
        state: State,
        actions: Tensor,
        strategy: DecodingStrategy,
        with_entropy: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities and entropies, by the fused kernel if it applies."""
        if SUPPORT not in state and self.is_fused(cache, strategy):
            keys = cache.glimpse_key, cache.glimpse_value, cache.folded_key
            query, mask = self._query(state, cache), state["action_mask"]
            fused = self.pointer.log_probs(
                query, *keys, mask, actions, strategy.filters, with_entropy
            )
            if fused is not None:
                return fused
        return super().log_probs(cache, state, actions, strategy, with_entropy)

    def _query(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Context and graph context `[B, Q, D]`."""
        query = self.context_embedding(cache.context, state)
        return query if cache.graph_context is None else query + cache.graph_context

    def point(self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]` of queries `[B, Q, D]`."""
        dynamic = self.dynamic_embedding
        if dynamic is None:
            keys = cache.glimpse_key, cache.glimpse_value, cache.logit_key
            return self.pointer(query, *keys, state["action_mask"], cache.folded_key)
        if (
            isinstance(dynamic, LinearDynamicEmbedding)
            and dynamic.is_linear
            and kernels.may_replace(self.pointer)
        ):  # changes need not be written out
            return self._changed_logits(query, state, cache, dynamic)
        return self._dynamic_logits(query, state, cache, dynamic)

    def _changed_logits(
        self,
        query: Tensor,
        state: Mapping[str, Tensor],
        cache: DecoderCache,
        dynamic: LinearDynamicEmbedding,
    ) -> Tensor:
        """Logits with keys and values that differ from query to query by rank one."""
        x = dynamic.features(state)  # [B, Q, N]
        w_key, w_value, w_logit = dynamic.weights()  # [D] each
        keys, mask = (cache.glimpse_key, cache.glimpse_value), state["action_mask"]
        heads = self.pointer.changed_glimpse(query, *keys, mask, (x, w_key, w_value))
        glimpse = self._project_heads(heads, state, cache)  # [B, Q, D]
        slope = self.pointer.score(glimpse, w_logit.unsqueeze(0))  # [B, Q, 1]
        return torch.addcmul(self.pointer.score(glimpse, cache.logit_key), slope, x)

    def _project_heads(
        self, heads: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> Tensor:
        """The output projection `[B, Q, D]` → `[B, Q, D]`; see :class:`ProjectingDecoder`."""
        return self.pointer.project_out(heads)

    def _dynamic_logits(
        self,
        query: Tensor,
        state: Mapping[str, Tensor],
        cache: DecoderCache,
        dynamic: nn.Module,
    ) -> Tensor:
        """Logits with keys and values of their own for every query, which is a row of its own."""
        key, value, logit_key = dynamic(state)  # [B, Q, N, D] each
        shape, num_heads = query.shape[:2], self.pointer.num_heads

        def per_query(shared: Tensor) -> Tensor:  # [B, ...] -> [B * Q, ...]
            return shared.unsqueeze(1).expand(*shape, *shared.shape[1:]).flatten(0, 1)

        logits = self.pointer(
            query.flatten(0, 1).unsqueeze(1),  # [B * Q, 1, D]
            per_query(cache.glimpse_key) + split_heads(key.flatten(0, 1), num_heads),
            per_query(cache.glimpse_value) + split_heads(value.flatten(0, 1), num_heads),
            per_query(cache.logit_key) + logit_key.flatten(0, 1),
            state["action_mask"].flatten(0, 1).unsqueeze(1),
        )
        return logits.view(*shape, -1)


class ProjectingDecoder(AttentionModelDecoder):
    """A pointer decoder that projects the glimpse in a way of its own, by `_project_heads`.

    Arguments: see :class:`AttentionModelDecoder`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        dynamic = self.dynamic_embedding
        if dynamic is not None and not isinstance(dynamic, LinearDynamicEmbedding):
            raise UnsupportedError(
                f"expected a LinearDynamicEmbedding or none for {type(self).__name__}, got "
                f"{type(dynamic).__name__}"
            )

    @override
    def point(self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        if isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            return self._changed_logits(query, state, cache, self.dynamic_embedding)
        keys = cache.glimpse_key, cache.glimpse_value
        heads = self.pointer.glimpse(query, *keys, state["action_mask"])  # [B, Q, D]
        return self.pointer.score(self._project_heads(heads, state, cache), cache.logit_key)
