"""Import path of the meta-learning callback."""

from __future__ import annotations

from rl4co.training.reptile import ReptileCallback

__all__ = ["ReptileCallback"]
