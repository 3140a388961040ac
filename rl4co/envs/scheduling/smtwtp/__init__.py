"""Single Machine Total Weighted Tardiness Problem."""

from rl4co.envs.scheduling.smtwtp.env import SMTWTPEnv
from rl4co.envs.scheduling.smtwtp.generator import SMTWTPGenerator

__all__ = ["SMTWTPEnv", "SMTWTPGenerator"]
