"""Policy of DevFormer (Kim et al., 2023).

Paper: https://arxiv.org/abs/2205.13225. Original code: kaist-silab/devformer.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from rl4co.models.zoo.am import AttentionModelPolicy
from rl4co.models.zoo.devformer.embeddings import DevFormerContext, DevFormerInitEmbedding


class DevFormerPolicy(AttentionModelPolicy):
    """Attention Model that sees kinds of cells, and asks with ports and last decap.

    Args:
        env_name: `dpp`, `mdpp`, or an environment with their states.
        use_graph_context: Whether the mean node embedding enters the query; not in DevFormer.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        env_name: str = "dpp",
        embed_dim: int = 128,
        init_embedding: nn.Module | None = None,
        context_embedding: nn.Module | None = None,
        use_graph_context: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            env_name=env_name,
            embed_dim=embed_dim,
            init_embedding=init_embedding or DevFormerInitEmbedding(embed_dim),
            context_embedding=context_embedding or DevFormerContext(embed_dim),
            use_graph_context=use_graph_context,
            **kwargs,
        )
