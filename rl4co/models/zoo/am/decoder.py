"""Decoder of the Attention Model: a context query points at nodes."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import RL4COEnvBase, State
from rl4co.models.embeddings import EmbeddingConfig, LinearDynamicEmbedding, make_embeddings
from rl4co.models.nn.attention import AttentionFn, PointerAttention
from rl4co.models.nn.recorded_attention import PointerRecord
from rl4co.models.policies.autoregressive import AutoregressiveDecoder
from rl4co.models.zoo.am.compiled_rollout import can_roll_out, roll_out


@dataclasses.dataclass
class DecoderCache:
    """What is computed once per instance.

    Attributes:
        context: What the context embedding prepared from the node embeddings.
        graph_context: Projected mean of the node embeddings `[B, 1, D]`, or None.
        glimpse_key: `[B, H, N, d]`.
        glimpse_value: `[B, H, N, d]`.
        folded_key: Logit keys with the output projection folded in `[B, N, D]`.
        folded_bias: `[B, 1, N]` or None.
    """

    context: Any
    graph_context: Tensor | None
    glimpse_key: Tensor
    glimpse_value: Tensor
    folded_key: Tensor
    folded_bias: Tensor | None


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
            none with a context embedding of your own).
        mask_inner: Whether the glimpse attends to allowed nodes only.
        out_bias_pointer_attn: Whether the pointer's output projection has a bias.
        linear_bias: Whether the projections of the node embeddings have biases.
        use_graph_context: Whether the mean of the node embeddings enters the query.
        sdpa_fn: Attention function of the glimpse.
        pointer: Replaces the pointer attention.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    can_narrow = True

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
        self.context_embedding = context_embedding
        self.dynamic_embedding = dynamic_embedding
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
        """State keys of the embeddings; None if keys and values change in any way they like."""
        keys: tuple[str, ...] | None = getattr(self.context_embedding, "state_keys", None)
        if self.dynamic_embedding is None or keys is None:
            return keys
        if isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            return (*keys, *self.dynamic_embedding.state_keys)
        return None

    def prepare(self, hidden: Tensor, state: Mapping[str, Tensor]) -> DecoderCache:
        """Projects the node embeddings `[B, N, D]` for all steps to come."""
        key, value, folded_key = self._project(hidden)
        graph_context = None
        if self.project_fixed_context is not None:
            graph_context = self.project_fixed_context(hidden.mean(1, keepdim=True))
        return DecoderCache(
            context=self._prepare_context(hidden),
            graph_context=graph_context,
            glimpse_key=self.pointer.split_heads(key).contiguous(),
            glimpse_value=self.pointer.split_heads(value).contiguous(),
            folded_key=folded_key,
            folded_bias=self._fold_bias(hidden),
        )

    def _prepare_context(self, hidden: Tensor) -> Any:
        """What the context embedding wants to keep; a plain module gets the node embeddings."""
        prepare = getattr(self.context_embedding, "prepare", None)
        return hidden if prepare is None else prepare(hidden)

    def _project(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Glimpse keys, glimpse values and folded logit keys `[B, N, D]` in one product.

        Folding the weights (D³) instead of the keys (N · D²) saves a product over all nodes.
        """
        dim = hidden.shape[-1]
        projection = self.project_node_embeddings
        plain, logit = projection.weight.split([2 * dim, dim])
        weight = torch.cat([plain, self.pointer.fold_output(logit.t()).t()])
        bias: Tensor | None = projection.bias
        if bias is not None:
            plain, logit = bias.split([2 * dim, dim])
            bias = torch.cat([plain, self.pointer.fold_output(logit)])
        key, value, folded_key = F.linear(hidden, weight, bias).chunk(3, dim=-1)
        return key, value, folded_key

    def _fold_bias(self, hidden: Tensor) -> Tensor | None:
        """Score `[B, 1, N]` that the pointer's output bias adds to each node."""
        if self.pointer.project_out.bias is None:
            return None
        dim, projection = hidden.shape[-1], self.project_node_embeddings
        bias = None if projection.bias is None else projection.bias[2 * dim :]
        logit_key = F.linear(hidden, projection.weight[2 * dim :], bias)  # [B, N, D]
        score = self.pointer.fold_bias(logit_key)
        return None if score is None else score.unsqueeze(1)

    def forward(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]`, neither clipped nor masked."""
        return self.point(self._query(state, cache), state, cache)

    def point(self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]` of queries `[B, Q, D]`."""
        if self.dynamic_embedding is not None:
            return self._dynamic_logits(query, state, cache)
        mask = state["action_mask"]
        keys = cache.glimpse_key, cache.glimpse_value, cache.folded_key
        record = PointerRecord.from_state(state)
        if record is not None:
            return self.pointer.replay(query, *keys, mask, record)
        return self.pointer(query, *keys, cache.folded_bias, mask)

    def annotate(
        self, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Logits, and the pointer's record that spares the replay its forward pass."""
        if type(self).forward is not AttentionModelDecoder.forward:
            return super().annotate(state, cache)
        return self.annotate_query(self._query(state, cache), state, cache)

    def annotate_query(
        self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """:meth:`annotate` for queries `[B, Q, D]`."""
        if self.dynamic_embedding is not None or not self.pointer.can_record(query):
            return self.point(query, state, cache), {}
        keys = cache.glimpse_key, cache.glimpse_value, cache.folded_key
        record = self.pointer.record(query, *keys, state["action_mask"])
        return record.logits, record.as_state()

    def roll_out(
        self,
        env: RL4COEnvBase,
        state: State,
        cache: DecoderCache,
        strategy: DecodingStrategy,
        *,
        starts: Tensor | None,
        record: bool,
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]] | None:
        """Solutions from a compiled loop, where there is one for this case."""
        if type(self) is not AttentionModelDecoder or not can_roll_out(env, self, strategy, state):
            return None
        return roll_out(env, self, cache, strategy, state, starts=starts, record=record)

    def _query(self, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Context and graph context `[B, Q, D]`."""
        query = self.context_embedding(cache.context, state)
        if query.dim() == 2:  # a context written for one solution per instance
            query = query.unsqueeze(1)
        return query if cache.graph_context is None else query + cache.graph_context

    def _dynamic_logits(
        self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> Tensor:
        """Logits with keys and values of their own for every query."""
        assert self.dynamic_embedding is not None
        if isinstance(self.dynamic_embedding, LinearDynamicEmbedding):
            change = self.dynamic_embedding.features(state), *self.dynamic_embedding.weights()
            keys = cache.glimpse_key, cache.glimpse_value, cache.folded_key
            mask = state["action_mask"]
            return self.pointer.with_change(query, *keys, cache.folded_bias, mask, change)
        key, value, logit_key = self.dynamic_embedding(state)  # [B, Q, N, D] each
        split = self.pointer.split_heads
        logit_key = logit_key.flatten(0, 1)  # [B * Q, N, D]
        bias = self.pointer.fold_bias(logit_key)
        shape = query.shape[:2]

        def per_query(shared: Tensor) -> Tensor:  # [B, ...] -> [B * Q, ...]
            return shared.unsqueeze(1).expand(*shape, *shared.shape[1:]).flatten(0, 1)

        if bias is not None and cache.folded_bias is not None:
            bias = bias.unsqueeze(1) + per_query(cache.folded_bias)
        logits = self.pointer(
            query.flatten(0, 1).unsqueeze(1),  # [B * Q, 1, D]
            per_query(cache.glimpse_key) + split(key.flatten(0, 1)),
            per_query(cache.glimpse_value) + split(value.flatten(0, 1)),
            per_query(cache.folded_key) + self.pointer.fold_output(logit_key),
            bias,
            state["action_mask"].flatten(0, 1).unsqueeze(1),
        )
        return logits.view(*shape, -1)
