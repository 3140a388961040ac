"""Instances of the vehicle routing problem with split deliveries: those of the CVRP."""

from __future__ import annotations

from rl4co.envs.routing.cvrp.generator import CVRPGenerator

__all__ = ["CVRPGenerator"]
