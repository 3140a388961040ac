"""CVRPMVC embeddings: those of the CVRP, so that weights of one fit the other."""

from __future__ import annotations

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings.cvrp import cvrp_embeddings


@EMBEDDINGS.register("cvrpmvc")
def cvrpmvc_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the CVRPMVC."""
    return cvrp_embeddings(config)
