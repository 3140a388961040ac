"""Traveling Salesman Problem with a reward for every step."""

from rl4co.envs.routing.tsp_dense.env import DenseRewardTSPEnv

__all__ = ["DenseRewardTSPEnv"]
