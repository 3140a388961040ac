"""Capacitated Vehicle Routing Problem."""

from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.envs.routing.cvrp.generator import CVRPGenerator

__all__ = ["CVRPEnv", "CVRPGenerator"]
