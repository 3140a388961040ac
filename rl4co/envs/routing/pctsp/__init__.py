"""Prize Collecting Travelling Salesman Problem."""

from rl4co.envs.routing.pctsp.env import PCTSPEnv
from rl4co.envs.routing.pctsp.generator import PCTSPGenerator

__all__ = ["PCTSPEnv", "PCTSPGenerator"]
