"""Pickup and Delivery Problem, improved by moving one order at a time."""

from rl4co.envs.routing.pdp_ruin_repair.env import PDPRuinRepairEnv

__all__ = ["PDPRuinRepairEnv"]
