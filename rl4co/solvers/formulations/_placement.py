"""Formulations of placement problems: sets of cells next to ports."""

from __future__ import annotations

from typing import ClassVar

from rl4co.solvers.formulations._base import Formulation


class PlacementFormulation(Formulation):
    """A problem whose solutions are cells of a grid, in any order."""

    kind: ClassVar[str] = "placement problem"
