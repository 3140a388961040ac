"""Split Delivery Vehicle Routing Problem."""

from rl4co.envs.routing.sdvrp.env import SDVRPEnv

__all__ = ["SDVRPEnv"]
