"""Policy of Sym-NCO: an Attention Model that also projects its embeddings (Kim et al., 2022).

Paper: https://arxiv.org/abs/2205.13209. Original code: alstn12088/Sym-NCO.
"""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from torch import nn

from rl4co.envs.base import RL4COEnvBase
from rl4co.models.zoo.am import AttentionModelPolicy


class SymNCOPolicy(AttentionModelPolicy):
    """Attention Model with a projection head for the invariance loss.

    Args:
        projection_head: `[..., D]` → `[..., D']` (default: two layers with a ReLU in between).
        use_projection_head: Whether embeddings are projected; otherwise they are compared as they
            are.
        kwargs: Further arguments, and those not listed here: see :class:`AttentionModelPolicy`.
    """

    def __init__(
        self,
        embed_dim: int = 128,
        env_name: str = "tsp",
        num_encoder_layers: int = 3,
        num_heads: int = 8,
        normalization: str | None = "batch",
        projection_head: nn.Module | None = None,
        use_projection_head: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            embed_dim=embed_dim,
            env_name=env_name,
            num_encoder_layers=num_encoder_layers,
            num_heads=num_heads,
            normalization=normalization,
            **kwargs,
        )
        self.projection_head: nn.Module
        if not use_projection_head:
            self.projection_head = nn.Identity()
        elif projection_head is None:
            self.projection_head = nn.Sequential(
                nn.Linear(embed_dim, embed_dim), nn.ReLU(), nn.Linear(embed_dim, embed_dim)
            )
        else:
            self.projection_head = projection_head

    def forward(  # type: ignore[override]
        self,
        td: TensorDictBase,
        env: RL4COEnvBase | str | None = None,
        phase: str = "train",
        return_hidden: bool = False,
        **options: Any,
    ) -> dict[str, Any]:
        """Constructs solutions, see :meth:`ConstructivePolicy.forward`.

        In the training phase the output also has `proj_embeddings [B, N, D']`.
        """
        training = phase == "train"
        out = super().forward(
            td, env, phase=phase, return_hidden=return_hidden or training, **options
        )
        if training:
            out["proj_embeddings"] = self.projection_head(out["hidden"])
            if not return_hidden:
                del out["hidden"]
        return out
