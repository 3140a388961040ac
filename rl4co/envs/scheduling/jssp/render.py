"""Figure of one job shop: that of the flexible job shop."""

from __future__ import annotations

from rl4co.envs.scheduling.fjsp.render import render

__all__ = ["render"]
