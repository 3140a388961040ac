"""Capacitated Vehicle Routing Problem."""

from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.envs.routing.cvrp.generator import CVRPGenerator
from rl4co.envs.routing.cvrp.x_set import CVRPXGenerator

__all__ = ["CVRPEnv", "CVRPGenerator", "CVRPXGenerator"]
