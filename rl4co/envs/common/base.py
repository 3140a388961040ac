"""Published import path of the base class of environments."""

from __future__ import annotations

from rl4co.envs.base import RL4COEnvBase

__all__ = ["RL4COEnvBase"]
