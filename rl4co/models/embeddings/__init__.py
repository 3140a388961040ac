"""Embeddings: what a policy needs to know of a problem, one file per problem.

Each file registers, under the environment's name, a function that builds an
:class:`EnvEmbeddings` record from an :class:`EmbeddingConfig`.
"""

from __future__ import annotations

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings._base import (
    ContextCache,
    ContextEmbedding,
    DepotInitEmbedding,
    DynamicEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    LinearDynamicEmbedding,
    LinearInitEmbedding,
    coordinates,
)
from rl4co.models.embeddings._edges import EdgeEmbedding, EmbeddedGraph
from rl4co.models.nn.factors import Kind

__all__ = [
    "ContextCache",
    "ContextEmbedding",
    "DepotInitEmbedding",
    "DynamicEmbedding",
    "EdgeEmbedding",
    "EmbeddedGraph",
    "EmbeddingConfig",
    "EnvEmbeddings",
    "Kind",
    "LinearDynamicEmbedding",
    "LinearInitEmbedding",
    "coordinates",
    "make_embeddings",
]


def make_embeddings(env_name: str, config: EmbeddingConfig) -> EnvEmbeddings:
    """The embeddings of the environment called `env_name`."""
    return EMBEDDINGS[env_name](config)
