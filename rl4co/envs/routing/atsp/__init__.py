"""Asymmetric Traveling Salesman Problem."""

from rl4co.envs.routing.atsp.env import ATSPEnv
from rl4co.envs.routing.atsp.generator import ATSPGenerator

__all__ = ["ATSPEnv", "ATSPGenerator"]
