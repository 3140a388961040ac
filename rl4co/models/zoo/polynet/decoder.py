"""Decoder of PolyNet: the Attention Model's, with layers that know which strategy they follow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.models.zoo.am import DecoderCache, ProjectingDecoder

#: State key of the strategy that a solution follows, `[B, S]`.
STRATEGY = "strategy"


class PolyNetDecoder(ProjectingDecoder):
    """Pointer decoder with k strategies.

    $$z_t = (g_t + p_t)^\\top K^\\ell / \\sqrt D, \\qquad
      p_t = W_2 \\, \\mathrm{ReLU}(W_1 [g_t, v_s] + b_1) + b_2, \\qquad
      g_t = W_o \\, \\mathrm{MHA}(q_t, K^g, V^g, M_t)$$

    The strategy s of a solution has the binary vector $v_s$, the digits of its number. A state may
    bring the strategies along under the key "strategy"; otherwise solution s of each instance
    follows strategy s modulo k.

    Args:
        k: Number of strategies.
        poly_layer_dim: Width P of the layers.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelDecoder`.

    Shapes:
        state with axes `[B, Q]` → logits `[B, Q, N]`
    """

    binary_vectors: Tensor

    def __init__(
        self, k: int = 128, embed_dim: int = 128, poly_layer_dim: int = 256, **kwargs: Any
    ) -> None:
        super().__init__(embed_dim, **kwargs)
        check_at_least(1, k=k, poly_layer_dim=poly_layer_dim)
        self.k = k
        num_digits = (k - 1).bit_length()
        shifts = torch.arange(num_digits - 1, -1, -1)  # the most significant digit first
        digits = (torch.arange(k).unsqueeze(-1) >> shifts) & 1  # [k, digits]
        self.register_buffer("binary_vectors", digits.float(), persistent=False)
        self.poly_layer_1 = nn.Linear(embed_dim + num_digits, poly_layer_dim)
        self.poly_layer_2 = nn.Linear(poly_layer_dim, embed_dim)

    def zero_strategies_(self) -> None:
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

    def _project_heads(
        self, heads: Tensor, state: Mapping[str, Tensor], cache: DecoderCache
    ) -> Tensor:
        """The glimpse with what the strategies of its queries add: `[B, Q, D]` → `[B, Q, D]`."""
        glimpse = self.pointer.project_out(heads)
        digits = self.binary_vectors[state[STRATEGY]]  # [B, Q, digits]
        layer = self.poly_layer_1(torch.cat([glimpse, digits], -1)).relu()  # [B, Q, P]
        return glimpse + self.poly_layer_2(layer)
