"""Multi-Depot Capacitated Pickup and Delivery Problem."""

from rl4co.envs.routing.mdcpdp.env import MDCPDPEnv
from rl4co.envs.routing.mdcpdp.generator import MDCPDPGenerator

__all__ = ["MDCPDPEnv", "MDCPDPGenerator"]
