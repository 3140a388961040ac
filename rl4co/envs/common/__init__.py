"""Published import paths of what all environments share; no code."""

from __future__ import annotations

from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.distributions import get_sampler
from rl4co.envs.generator import Generator
from rl4co.envs.improvement import ImprovementEnvBase

__all__ = ["Generator", "ImprovementEnvBase", "RL4COEnvBase", "get_sampler"]
