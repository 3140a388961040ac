"""Critic of the Pointer Network (Bello et al., 2017, section 4.1)."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.checks import check_at_least
from rl4co.models.nn.additive_attention import AdditiveAttention
from rl4co.models.policies.precision import match_precision
from rl4co.models.rl.critic import CriticNetwork


class PointerNetworkCritic(CriticNetwork):
    """Value of an instance: an encoder, glimpses that start from its last state, and a head.

    $$g_0 = h_N, \\qquad
      g_{p+1} = \\textstyle\\sum_n \\mathrm{softmax}(u(g_p))_n \\, e_n, \\qquad
      V(x) = \\mathrm{MLP}(g_P)$$

    Args:
        encoder: A :class:`PointerNetworkEncoder` with separate weights.
        embed_dim: Size H of the encoder's LSTM.
        hidden_dim: Width of the value head (default: H).
        num_process_steps: Glimpses P.

    Shapes:
        state with batch `[B]` → `[B]`
    """

    def __init__(
        self,
        encoder: nn.Module,
        embed_dim: int = 128,
        hidden_dim: int | None = None,
        num_process_steps: int = 3,
    ) -> None:
        super().__init__(encoder, embed_dim=embed_dim, hidden_dim=hidden_dim or embed_dim)
        check_at_least(0, num_process_steps=num_process_steps)
        self.num_process_steps = num_process_steps
        self.process = AdditiveAttention(embed_dim)

    def forward(self, td: TensorDictBase | Tensor, hidden: Any = None) -> Tensor:
        """Values `[B]` of states after reset; `hidden` is for critics of another kind."""
        assert not isinstance(td, Tensor)
        encoded, _ = self.encoder(match_precision(td, self))
        nodes = self.process.project(encoded.references)  # [B, N, H]
        query = encoded.hidden.unsqueeze(1)  # [B, 1, H]
        for _ in range(self.num_process_steps):
            query = torch.bmm(self.process(query, nodes).softmax(-1), nodes.keys)  # [B, 1, H]
        return self.value_head(query.squeeze(1)).squeeze(-1)  # [B]
