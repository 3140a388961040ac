"""PCTSP: one tour that collects enough; penalties for customers left out."""

from __future__ import annotations

from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    SHARE,
    Instance,
    SelectiveFormulation,
    customers_of,
    lengths,
)


@FORMULATIONS.register("pctsp")
class PCTSPFormulation(SelectiveFormulation):
    """One tour with the real prizes, as if they were known in advance."""

    solvers = ("pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Where all prizes together are not enough, all customers must be visited."""
        length, prize = lengths(instance), instance["real_prize"]
        required = float(instance["prize_required"][0]) * (1.0 - SHARE * env.prize_tolerance)
        enough = float(prize.sum()) >= required
        return RoutingProblem(
            length,
            customers_of(len(length)),
            (Vehicle(),),
            skip_cost=instance["penalty"] if enough else None,
            prize=prize if enough else None,
            min_prize=required if enough else 0.0,
        )
