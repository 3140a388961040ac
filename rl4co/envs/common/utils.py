"""Published import path of generators and samplers."""

from __future__ import annotations

from rl4co.envs.distributions import get_sampler
from rl4co.envs.generator import Generator

__all__ = ["Generator", "get_sampler"]
