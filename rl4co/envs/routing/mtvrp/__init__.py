"""Multi-Task Vehicle Routing Problem: sixteen variants in one environment."""

from rl4co.envs.routing.mtvrp.env import MTVRPEnv
from rl4co.envs.routing.mtvrp.generator import MTVRPGenerator

__all__ = ["MTVRPEnv", "MTVRPGenerator"]
