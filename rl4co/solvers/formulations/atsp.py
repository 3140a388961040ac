"""ATSP: solved like the TSP."""

from __future__ import annotations

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations.tsp import TSPFormulation


@FORMULATIONS.register("atsp")
class ATSPFormulation(TSPFormulation):
    """The same tours, with lengths that depend on the direction."""

    is_plain = False
    large_solver = None
