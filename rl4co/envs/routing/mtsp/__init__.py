"""Multiple Traveling Salesman Problem."""

from rl4co.envs.routing.mtsp.env import MTSPEnv
from rl4co.envs.routing.mtsp.generator import MTSPGenerator

__all__ = ["MTSPEnv", "MTSPGenerator"]
