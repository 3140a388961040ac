"""Shortest Hamiltonian Path Problem."""

from rl4co.envs.routing.shpp.env import SHPPEnv
from rl4co.envs.routing.shpp.generator import SHPPGenerator

__all__ = ["SHPPEnv", "SHPPGenerator"]
