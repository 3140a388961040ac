"""Import path of the logger."""

from __future__ import annotations

from rl4co.tasks.instantiate import get_pylogger

__all__ = ["get_pylogger"]
