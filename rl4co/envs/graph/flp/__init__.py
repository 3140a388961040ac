"""Facility Location Problem."""

from rl4co.envs.graph.flp.env import FLPEnv
from rl4co.envs.graph.flp.generator import FLPGenerator

__all__ = ["FLPEnv", "FLPGenerator"]
