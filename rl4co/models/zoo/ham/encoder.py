"""Encoder of the Heterogeneous Attention Model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.models.nn.norm import make_normalization
from rl4co.models.nn.transformer import FeedForward
from rl4co.models.zoo.am import AttentionModelEncoder
from rl4co.models.zoo.ham.attention import HeterogeneousAttention


class HeterogeneousLayer(nn.Module):
    """One block: heterogeneous attention and feed-forward, with residuals and normalisation."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        feedforward_hidden: int,
        normalization: str | None,
        bias: bool,
    ) -> None:
        super().__init__()
        self.attention = HeterogeneousAttention(embed_dim, num_heads, bias)
        self.norm_attention = make_normalization(normalization, embed_dim)
        self.feedforward = FeedForward(embed_dim, feedforward_hidden)
        self.norm_feedforward = make_normalization(normalization, embed_dim)

    def forward(self, h: Tensor, num_depots: int) -> Tensor:
        """`[B, N, D]` → `[B, N, D]`."""
        h = self.norm_attention(h + self.attention(h, num_depots))
        return self.norm_feedforward(h + self.feedforward(h))


class HeterogeneousAttentionModelEncoder(AttentionModelEncoder):
    """Node embeddings by blocks of heterogeneous attention.

    Args:
        init_embedding: Instance → `[B, N, D]` (default: that of `env_name`). Its method
            `num_depots(state)` says how many of the first nodes are depots (without it, one is);
            pickups and, in the same order, deliveries follow.

    Other arguments: see :class:`AttentionModelEncoder`.

    Shapes:
        state with batch `[B]` → `[B, N, D]`, `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        init_embedding: nn.Module | None = None,
        env_name: str = "pdp",
        num_heads: int = 8,
        num_layers: int = 3,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        bias: bool = True,
    ) -> None:
        layers = nn.ModuleList(
            HeterogeneousLayer(embed_dim, num_heads, feedforward_hidden, normalization, bias)
            for _ in range(num_layers)
        )
        super().__init__(embed_dim, init_embedding, env_name, net=layers)

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Final and initial node embeddings."""
        count = getattr(self.init_embedding, "num_depots", None)
        num_depots = 1 if count is None else count(td)
        init_embeds = h = self.init_embedding(td)  # [B, N, D]
        assert isinstance(self.net, nn.ModuleList)
        for layer in self.net:
            h = layer(h, num_depots)
        return h, init_embeds
