"""Embeddings: the part of a policy that is specific to a problem, one file per problem.

Each file registers, under the environment's name, a function that builds an
:class:`EnvEmbeddings` record from an :class:`EmbeddingConfig`.
"""

from __future__ import annotations

from rl4co.core.registry import EMBEDDINGS
from rl4co.models.embeddings._base import (
    ContextEmbedding,
    ContextTable,
    DepotInitEmbedding,
    DynamicEmbedding,
    EmbeddingConfig,
    EnvEmbeddings,
    Kind,
    LinearDynamicEmbedding,
    LinearInitEmbedding,
    coordinates,
)
from rl4co.models.embeddings._edges import EdgeEmbedding, EmbeddedGraph

__all__ = [
    "ContextEmbedding",
    "ContextTable",
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
