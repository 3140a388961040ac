"""TSP with dense rewards: solved like the TSP."""

from __future__ import annotations

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations.tsp import TSPFormulation


@FORMULATIONS.register("tsp_dense")
class TSPDenseFormulation(TSPFormulation):
    """The same tours; rewards on the way change nothing about them."""
