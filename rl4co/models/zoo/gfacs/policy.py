"""Policy of GFACS: a graph network with an estimate of the partition function (Kim et al., 2025).

Paper: https://arxiv.org/abs/2403.07041. Original code: ai4co/gfacs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from rl4co.models.policies.nonautoregressive import EdgeWeights
from rl4co.models.zoo.deepaco import DeepACOPolicy


class LogPartition(nn.Module):
    """$\\log Z$ of each instance: a perceptron per edge, and the mean over the instance's edges.

    Args:
        embed_dim: Embedding size D.
        num_outputs: 2: one for solutions of the policy, one for those of the local search.

    Shapes:
        edges `[B, E, D]` → `[B, num_outputs]`
    """

    def __init__(self, embed_dim: int, num_outputs: int = 2) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(embed_dim, embed_dim), nn.ReLU(), nn.Linear(embed_dim, num_outputs)
        )

    def forward(self, edges: Tensor) -> Tensor:
        """One row per instance."""
        values: Tensor = self.net(edges)
        return values.mean(1)


class GFACSPolicy(DeepACOPolicy):
    """Weights of edges for ants, and $\\log Z$ for trajectory balance.

    Args:
        aco_kwargs: Settings of the colony; they win over those of GFACS (all ants leave pheromone,
            the mean quality taken off and the total kept).
        kwargs: Further arguments, and those not listed here: see :class:`DeepACOPolicy`.
    """

    def __init__(
        self,
        env_name: str = "tsp",
        embed_dim: int = 32,
        aco_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        settings = {"variant": "balanced", **(aco_kwargs or {})}
        super().__init__(env_name=env_name, embed_dim=embed_dim, aco_kwargs=settings, **kwargs)
        self.log_partition = LogPartition(embed_dim)

    def log_z(self, hidden: EdgeWeights) -> Tensor:
        """$\\log Z$ of the policy's solutions and of improved ones: `[B, 2]`."""
        values: Tensor = self.log_partition(hidden.edges)
        return values
