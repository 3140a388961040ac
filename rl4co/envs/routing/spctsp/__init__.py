"""Stochastic Prize Collecting Travelling Salesman Problem."""

from rl4co.envs.routing.spctsp.env import SPCTSPEnv

__all__ = ["SPCTSPEnv"]
