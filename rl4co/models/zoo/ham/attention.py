"""Heterogeneous attention between pickups and deliveries (Li et al., 2021).

Paper: https://arxiv.org/abs/2110.02634.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from torch import Tensor, nn

from rl4co.core.errors import ConfigError
from rl4co.models.nn.attention import check_heads


class HeterogeneousAttention(nn.Module):
    """Self-attention in which a customer asks further questions, of its partner and of each role.

    Customer i of role r (pickup or delivery) has the query $q_i$ of ordinary attention to all
    nodes, and three more of its role: $q^{r}_{i,0}$ to its partner (of a pickup its delivery, and
    vice versa), $q^{r}_{i,1}$ to all pickups, $q^{r}_{i,2}$ to all deliveries. All share one
    softmax, keys and values:

    $$\\mathrm{HA}_i = \\frac1{Z_i} \\Big(\\sum_{j} e^{q_i k_j} v_j
      + e^{q^r_{i,0} k_{p(i)}} v_{p(i)} + \\sum_{j \\in P} e^{q^r_{i,1} k_j} v_j
      + \\sum_{j \\in D} e^{q^r_{i,2} k_j} v_j\\Big)$$

    with products divided by $\\sqrt d$ and $Z_i$ the sum of all weights. A depot has the first sum
    alone.

    Args:
        embed_dim: Embedding size D.
        num_heads: Heads H; must divide D.
        bias: Whether the projections have biases.

    Shapes:
        `x [B, N, D]`: depots, pickups, deliveries (in the order of the pickups) → `[B, N, D]`
    """

    def __init__(self, embed_dim: int, num_heads: int, bias: bool = True) -> None:
        super().__init__()
        check_heads(embed_dim, num_heads)
        self.num_heads = num_heads
        self.Wqkv = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        # Questions to the partner, to pickups and to deliveries.
        self.ask_as_pickup = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.ask_as_delivery = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(self, x: Tensor, num_depots: int = 1) -> Tensor:
        """Attends from every node to every node, and from customers to the roles.

        Args:
            x: Node embeddings `[B, N, D]`.
            num_depots: How many of the first nodes are depots.
        """
        customers = x.shape[1] - num_depots  # C
        if customers % 2:
            raise ConfigError(
                f"expected as many pickups as deliveries, got {customers} customers and "
                f"{num_depots} depots"
            )
        q, k, v = self._split(self.Wqkv(x))  # [B, H, N, d] each
        pickups, deliveries = x[:, num_depots:].chunk(2, 1)  # [B, C / 2, D] each
        role_queries = torch.cat([self.ask_as_pickup(pickups), self.ask_as_delivery(deliveries)], 1)
        to_partner, *to_roles = self._split(role_queries)  # [B, H, C, d] each
        q, to_partner = q / math.sqrt(q.shape[-1]), to_partner / math.sqrt(q.shape[-1])

        k_customers, v_customers = k[:, :, num_depots:], v[:, :, num_depots:]  # [B, H, C, d]
        half = customers // 2
        roles = k_customers.unflatten(2, (2, half))  # [B, H, 2, C / 2, d]
        questions = torch.stack(to_roles, 2) / math.sqrt(q.shape[-1])  # [B, H, 2, C, d]
        role_scores = (questions @ roles.mT).transpose(2, 3).flatten(3)  # [B, H, C, C]
        partner_scores = (to_partner * k_customers.roll(half, 2)).sum(-1, keepdim=True)
        extra = torch.cat([partner_scores, role_scores], -1)  # [B, H, C, 1 + C]
        # Depots have no further questions.
        extra = F.pad(extra, (0, 0, num_depots, 0), value=-math.inf)  # [B, H, N, 1 + C]
        weights = torch.cat([q @ k.mT, extra], -1).softmax(-1)  # [B, H, N, N + 1 + C]

        to_all, to_own_partner, to_role = weights.split([x.shape[1], 1, customers], -1)
        partners = F.pad(v_customers.roll(half, 2), (0, 0, num_depots, 0))  # [B, H, N, d]
        heads = to_all @ v + to_own_partner * partners + to_role @ v_customers
        return self.out_proj(heads.transpose(1, 2).flatten(2))  # [B, N, D]

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`[B, N, 3 * D]` → three times `[B, H, N, d]`."""
        first, second, third = x.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return first, second, third
