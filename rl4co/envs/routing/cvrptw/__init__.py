"""Capacitated Vehicle Routing Problem with Time Windows."""

from rl4co.envs.routing.cvrptw.env import CVRPTWEnv
from rl4co.envs.routing.cvrptw.generator import CVRPTWGenerator

__all__ = ["CVRPTWEnv", "CVRPTWGenerator"]
