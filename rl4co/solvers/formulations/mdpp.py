"""Decap placement with several ports: as with one, see the formulation of the DPP."""

from __future__ import annotations

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations.dpp import DecapPlacement


@FORMULATIONS.register("mdpp")
class MultiPortDecapPlacement(DecapPlacement):
    """Several ports, one placement."""
