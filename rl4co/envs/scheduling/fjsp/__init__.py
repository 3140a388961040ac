"""Flexible Job Shop Scheduling Problem."""

from rl4co.envs.scheduling.fjsp.env import FJSPEnv
from rl4co.envs.scheduling.fjsp.generator import FJSPFileGenerator, FJSPGenerator

__all__ = ["FJSPEnv", "FJSPFileGenerator", "FJSPGenerator"]
