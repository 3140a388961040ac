"""Published import path of the base class of environments."""

from __future__ import annotations

from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import ImprovementEnvBase

__all__ = ["ImprovementEnvBase", "RL4COEnvBase"]
