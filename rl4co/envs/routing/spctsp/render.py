"""Plot of one stochastic prize collecting instance: that of the deterministic problem."""

from __future__ import annotations

from rl4co.envs.routing.pctsp.render import render

__all__ = ["render"]
