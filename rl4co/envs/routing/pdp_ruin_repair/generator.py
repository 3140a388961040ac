"""Instances of the PDP with improvement: those of the PDP."""

from __future__ import annotations

from rl4co.envs.routing.pdp.generator import PDPGenerator

__all__ = ["PDPGenerator"]
