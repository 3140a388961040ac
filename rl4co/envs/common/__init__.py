"""Published import paths of what all environments share; no code of its own."""

from __future__ import annotations

from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.distributions import get_sampler
from rl4co.envs.generator import Generator

__all__ = ["Generator", "RL4COEnvBase", "get_sampler"]
