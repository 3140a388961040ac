"""Instances of the stochastic PCTSP: those of the PCTSP, which hold expected and real prizes."""

from __future__ import annotations

from rl4co.envs.routing.pctsp.generator import PCTSPGenerator

__all__ = ["PCTSPGenerator"]
