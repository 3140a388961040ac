"""Published import path of the embeddings of instances."""

from __future__ import annotations

from rl4co.models.embeddings._parts import env_init_embedding

__all__ = ["env_init_embedding"]
