"""Instances of the TSP with improvement: those of the TSP."""

from __future__ import annotations

from rl4co.envs.routing.tsp.generator import TSPGenerator

__all__ = ["TSPGenerator"]
