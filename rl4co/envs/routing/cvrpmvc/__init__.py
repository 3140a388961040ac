"""Capacitated Vehicle Routing Problem with few vehicles (minimum vehicle count)."""

from rl4co.envs.routing.cvrpmvc.env import CVRPMVCEnv

__all__ = ["CVRPMVCEnv"]
