"""SPCTSP, with the real prizes, as if they were known in advance."""

from __future__ import annotations

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations.pctsp import PCTSPFormulation


@FORMULATIONS.register("spctsp")
class SPCTSPFormulation(PCTSPFormulation):
    """The PCTSP of the real prizes: no policy can be expected to reach its costs."""
