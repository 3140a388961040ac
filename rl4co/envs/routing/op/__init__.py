"""Orienteering Problem."""

from rl4co.envs.routing.op.env import OPEnv
from rl4co.envs.routing.op.generator import OPGenerator

__all__ = ["OPEnv", "OPGenerator"]
