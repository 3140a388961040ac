"""Pickup and Delivery Problem."""

from rl4co.envs.routing.pdp.env import PDPEnv
from rl4co.envs.routing.pdp.generator import PDPGenerator

__all__ = ["PDPEnv", "PDPGenerator"]
