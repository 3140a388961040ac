"""Job Shop Scheduling Problem."""

from rl4co.envs.scheduling.jssp.env import JSSPEnv
from rl4co.envs.scheduling.jssp.generator import JSSPFileGenerator, JSSPGenerator

__all__ = ["JSSPEnv", "JSSPFileGenerator", "JSSPGenerator"]
