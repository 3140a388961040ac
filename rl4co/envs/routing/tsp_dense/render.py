"""Plot of one instance of the TSP with dense rewards: that of the TSP."""

from __future__ import annotations

from rl4co.envs.routing.tsp.render import render

__all__ = ["render"]
