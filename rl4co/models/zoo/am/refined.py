"""Decoder of the Attention Model for instances of many sizes: a refined glimpse, near nodes first.

Papers: Huang et al., 2025 (ReLD), https://openreview.net/forum?id=4pRwkYpa2u; the bias by distance
also in Zhou et al., 2024 (ICAM), https://arxiv.org/abs/2405.01906, and Gao et al., 2024 (ELG),
https://arxiv.org/abs/2308.14104.
"""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.core.layouts import node_index
from rl4co.core.ops import gather_points, get_distance_matrix
from rl4co.models.embeddings import ContextEmbedding, coordinates
from rl4co.models.nn.transformer import FeedForward
from rl4co.models.zoo.am.decoder import DecoderCache, ProjectingDecoder

#: Distances below this count as this one, so that nodes at one place have a finite logarithm.
SMALLEST_DISTANCE = 1e-6


@dataclasses.dataclass
class RefinedCache(DecoderCache):
    """What is computed once per instance.

    Attributes:
        nodes: Node embeddings `[B, N, D]`.
        log_distance: Logarithms of the distances `[B, N, N]`, or None without a bias.
    """

    nodes: Tensor
    log_distance: Tensor | None


class RefinedDecoder(ProjectingDecoder):
    """Pointer decoder whose query is refined by the current state, with a bias to near nodes.

    $$z_t = (q_t + \\mathrm{FF}(q_t))^\\top K^\\ell / \\sqrt D - \\log d(a_{t-1}, \\cdot), \\qquad
      q_t = g_t + h_{a_{t-1}} + W_s s_t, \\qquad g_t = W_o \\, \\mathrm{MHA}(c_t, K^g, V^g, M_t)$$

    with the context query $c_t$ and the features $s_t$ of the state (the free capacity, say). The
    bias is zero before the first node, and for the last node itself.

    Args:
        embed_dim: Embedding size D.
        env_name: Environment whose embeddings to use.
        refinement_hidden: Width of the feed-forward layer FF; None: the glimpse is not refined.
        distance_bias: Whether the logarithms of the distances are subtracted from the logits.
        kwargs: See :class:`AttentionModelDecoder`.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        env_name: str = "tsp",
        refinement_hidden: int | None = 512,
        distance_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(embed_dim, env_name=env_name, **kwargs)
        context = self.context_embedding
        if not isinstance(context, ContextEmbedding):
            raise UnsupportedError(
                "expected a ContextEmbedding for a refined glimpse or a distance bias, got "
                f"{type(context).__name__}"
            )
        if refinement_hidden is not None and refinement_hidden < 1:
            raise ConfigError(
                f"expected refinement_hidden of at least 1 or None, got {refinement_hidden}"
            )
        self.env_name, self.distance_bias = env_name, distance_bias
        self.feedforward: nn.Module | None = None
        self.project_features: nn.Module | None = None
        if refinement_hidden is not None:
            self.feedforward = FeedForward(embed_dim, refinement_hidden)
            if context.num_features:
                self.project_features = nn.Linear(context.num_features, embed_dim, bias=False)

    @property
    def _context(self) -> ContextEmbedding:
        context = self.context_embedding
        assert isinstance(context, ContextEmbedding)
        return context

    @property
    def replay_keys(self) -> tuple[str, ...] | None:
        """State keys of the embeddings, and the last node."""
        keys = super().replay_keys
        return None if keys is None else tuple(dict.fromkeys((*keys, "current_node")))

    def prepare(  # type: ignore[override]
        self, hidden: Tensor, state: Mapping[str, Tensor]
    ) -> RefinedCache:
        """Projects the node embeddings `[B, N, D]` and measures distances."""
        plain = super().prepare(hidden, state)
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return RefinedCache(
            **{**fields, "folded_key": None},  # the fused kernel knows no refinement
            nodes=hidden,
            log_distance=self._log_distance(state) if self.distance_bias else None,
        )

    def _log_distance(self, state: Mapping[str, Tensor]) -> Tensor:
        """Logarithms of the distances `[B, N, N]`; of a matrix, as shares of its largest entry."""
        if "cost_matrix" in state:
            matrix = state["cost_matrix"]
            distance = matrix / matrix.amax((-2, -1), keepdim=True).clamp_min(SMALLEST_DISTANCE)
        else:
            distance = get_distance_matrix(coordinates(state, self.env_name))
        log_distance = distance.clamp_min(SMALLEST_DISTANCE).log()
        itself = torch.eye(distance.shape[-1], dtype=torch.bool, device=distance.device)
        return log_distance.masked_fill(itself, 0.0)

    def point(self, query: Tensor, state: Mapping[str, Tensor], cache: DecoderCache) -> Tensor:
        """Logits `[B, Q, N]` of queries `[B, Q, D]`."""
        assert isinstance(cache, RefinedCache)
        logits = super().point(query, state, cache)
        return logits if cache.log_distance is None else logits - self._bias(state, cache)

    def _bias(self, state: Mapping[str, Tensor], cache: RefinedCache) -> Tensor:
        """Logarithms of the distances `[B, Q, N]` from the last nodes."""
        assert cache.log_distance is not None
        bias = gather_points(cache.log_distance, node_index(state, "current_node"))
        begins = self._context.before_first_node(state)
        return bias if begins is None else bias.masked_fill(begins, 0.0)

    def _project_heads(
        self, heads: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> Tensor:
        """The glimpse with what the state adds, after the feed-forward layer: `[B, Q, D]`."""
        assert isinstance(cache, RefinedCache)
        glimpse = self.pointer.project_out(heads)
        if self.feedforward is None:
            return glimpse
        # The last node, or the placeholder of a problem that begins without one.
        last = self._context.node_inputs(cache.nodes, state)[..., -heads.shape[-1] :]
        glimpse = glimpse + last
        if self.project_features is not None:
            glimpse = glimpse + self.project_features(self._context.features(state))
        return glimpse + self.feedforward(glimpse)
