"""Multi-Port Decap Placement Problem."""

from rl4co.envs.eda.mdpp.env import MDPPEnv
from rl4co.envs.eda.mdpp.generator import MDPPGenerator

__all__ = ["MDPPEnv", "MDPPGenerator"]
