"""Encoder of the Attention Model: init embedding, then graph attention."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from rl4co.models.embeddings import EmbeddingConfig, make_embeddings
from rl4co.models.nn.attention import AttentionFn
from rl4co.models.nn.moe import MoEConfig
from rl4co.models.nn.transformer import GraphAttentionNetwork
from rl4co.models.policies.autoregressive import AutoregressiveEncoder


class AttentionModelEncoder(AutoregressiveEncoder):
    """Node embeddings $h = \\mathrm{Blocks}(\\mathrm{InitEmbedding}(x))$.

    Args:
        embed_dim: Embedding size D.
        init_embedding: Instance → `[B, N, D]` (default: that of `env_name`).
        env_name: Environment whose embedding to use.
        num_heads: Attention heads.
        num_layers: Blocks.
        normalization: "batch", "instance", "layer" or None.
        feedforward_hidden: Width of the feed-forward layers.
        net: Replaces the blocks: `[B, N, D]` → `[B, N, D]`.
        sdpa_fn: Attention function.
        bias: Whether the attention projections have biases.
        moe: Experts in place of the feed-forward layers.

    Shapes:
        state with batch `[B]` → `[B, N, D]`, `[B, N, D]`
    """

    def __init__(
        self,
        embed_dim: int = 128,
        init_embedding: nn.Module | None = None,
        env_name: str = "tsp",
        num_heads: int = 8,
        num_layers: int = 3,
        normalization: str | None = "batch",
        feedforward_hidden: int = 512,
        net: nn.Module | None = None,
        sdpa_fn: AttentionFn | None = None,
        bias: bool = True,
        moe: MoEConfig | None = None,
    ) -> None:
        super().__init__()
        self.init_embedding = (
            make_embeddings(env_name, EmbeddingConfig(embed_dim)).init
            if init_embedding is None
            else init_embedding
        )
        self.net = (
            GraphAttentionNetwork(
                embed_dim=embed_dim,
                num_heads=num_heads,
                num_layers=num_layers,
                feedforward_hidden=feedforward_hidden,
                normalization=normalization,
                bias=bias,
                sdpa_fn=sdpa_fn,
                moe=moe,
            )
            if net is None
            else net
        )

    def forward(self, td: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Final and initial node embeddings."""
        init_embeds = self.init_embedding(td)  # [B, N, D]
        return self.net(init_embeds), init_embeds
