"""SMTWTP embeddings: due time, weight and processing time in; last job and the clock as context."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from torch import Tensor, nn

from rl4co.core.layouts import node_index, per_solution
from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import (
    ContextEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    Kind,
    LinearInitEmbedding,
)


class SMTWTPInitEmbedding(LinearInitEmbedding):
    """Linear map of due time, weight and processing time: state → `[B, N, D]`, dummy first."""

    def __init__(self, embed_dim: int, linear_bias: bool = True) -> None:
        super().__init__()
        self.init_embed = nn.Linear(3, embed_dim, linear_bias)

    def kinds(self, state: Mapping[str, Tensor]) -> list[Kind]:
        """All jobs are alike."""
        features = [state["job_due_time"], state["job_weight"], state["job_process_time"]]
        return [(torch.stack(features, -1), self.init_embed)]


class SMTWTPContext(ContextEmbedding):
    """Query from the last job and the time at which it ended: $q = W [h_{a_{t-1}}, t]$."""

    state_keys = ("current_job", "current_time")

    def __init__(self, embed_dim: int) -> None:
        super().__init__(embed_dim, num_nodes=1, num_features=1)

    def nodes(self, state: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The last job; the dummy before the first."""
        return (node_index(state, "current_job"),)

    def features(self, state: Mapping[str, Tensor]) -> Tensor:
        """The clock."""
        return per_solution(state, "current_time")


@EMBEDDINGS.register("smtwtp")
def smtwtp_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the SMTWTP."""
    return EnvEmbeddings(
        init=SMTWTPInitEmbedding(config.embed_dim, config.linear_bias),
        context=SMTWTPContext(config.embed_dim),
    )
