"""Instances of the CVRPMVC: those of the CVRP, which say how many vehicles are needed."""

from rl4co.envs.routing.cvrp.generator import CVRPGenerator

__all__ = ["CVRPGenerator"]
