"""Published import path of the embeddings of edges."""

from __future__ import annotations

from rl4co.models.embeddings._parts import env_edge_embedding

__all__ = ["env_edge_embedding"]
