"""Maximum Coverage Problem."""

from rl4co.envs.graph.mcp.env import MCPEnv
from rl4co.envs.graph.mcp.generator import MCPGenerator

__all__ = ["MCPEnv", "MCPGenerator"]
