"""Skill Vehicle Routing Problem."""

from rl4co.envs.routing.svrp.env import SVRPEnv
from rl4co.envs.routing.svrp.generator import SVRPGenerator

__all__ = ["SVRPEnv", "SVRPGenerator"]
