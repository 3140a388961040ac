"""Traveling Salesman Problem, improved by exchanges of edges."""

from rl4co.envs.routing.tsp_kopt.env import TSPkoptEnv

__all__ = ["TSPkoptEnv"]
