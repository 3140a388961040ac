"""Embeddings of the TSP with dense rewards: those of the TSP, since the states are the same."""

from __future__ import annotations

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings import EmbeddingConfig, EnvEmbeddings
from rl4co.models.embeddings.tsp import TSPContext, TSPInitEmbedding


@EMBEDDINGS.register("tsp_dense")
def tsp_dense_embeddings(config: EmbeddingConfig) -> EnvEmbeddings:
    """Init and context embeddings of the TSP."""
    return EnvEmbeddings(
        init=TSPInitEmbedding(config.embed_dim, config.linear_bias),
        context=TSPContext(config.embed_dim),
    )
