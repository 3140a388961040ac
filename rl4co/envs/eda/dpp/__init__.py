"""Decap Placement Problem."""

from rl4co.envs.eda.dpp.env import DPPEnv
from rl4co.envs.eda.dpp.generator import DPPGenerator

__all__ = ["DPPEnv", "DPPGenerator"]
