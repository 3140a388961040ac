"""Published import path of the embeddings of what changes during decoding."""

from __future__ import annotations

from rl4co.models.embeddings._parts import env_dynamic_embedding

__all__ = ["env_dynamic_embedding"]
