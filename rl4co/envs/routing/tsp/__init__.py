"""Traveling Salesman Problem."""

from rl4co.envs.routing.tsp.env import TSPEnv
from rl4co.envs.routing.tsp.generator import TSPGenerator

__all__ = ["TSPEnv", "TSPGenerator"]
