"""Flexible Flow Shop Problem."""

from rl4co.envs.scheduling.ffsp.env import FFSPEnv
from rl4co.envs.scheduling.ffsp.generator import FFSPGenerator

__all__ = ["FFSPEnv", "FFSPGenerator"]
