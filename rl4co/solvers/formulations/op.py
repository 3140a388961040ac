"""OP: lengths cost nothing but are limited; prizes not collected are lost."""

from __future__ import annotations

from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    SelectiveFormulation,
    customers_of,
    lengths,
)


@FORMULATIONS.register("op")
class OPFormulation(SelectiveFormulation):
    """One tour of limited length that chooses its customers."""

    solvers = ("pyvrp", "ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """Customers left out cost their prizes."""
        length, prize = lengths(instance), instance["prize"]
        limit = max(float(instance["max_length"][0]) - env.length_margin, 0.0)
        return RoutingProblem(
            length,
            customers_of(len(length)),
            (Vehicle(max_length=limit, rate=0.0),),
            constant=-float(prize.sum()),
            skip_cost=prize,
        )
