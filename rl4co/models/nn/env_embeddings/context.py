"""Published import path of the embeddings of the state at a step."""

from __future__ import annotations

from rl4co.models.embeddings._parts import env_context_embedding

__all__ = ["env_context_embedding"]
