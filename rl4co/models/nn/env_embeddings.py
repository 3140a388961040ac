"""Import path of the embeddings by environment name."""

from __future__ import annotations

from rl4co.models.embeddings._parts import (
    env_context_embedding,
    env_dynamic_embedding,
    env_edge_embedding,
    env_init_embedding,
)

__all__ = [
    "env_context_embedding",
    "env_dynamic_embedding",
    "env_edge_embedding",
    "env_init_embedding",
]
