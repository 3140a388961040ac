"""SDVRP in which no customer is served twice: a CVRP of the customers with a demand."""

from __future__ import annotations

import dataclasses

from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers.formulations._routing import Instance
from rl4co.solvers.formulations.cvrp import CVRPFormulation


@FORMULATIONS.register("sdvrp")
class SDVRPFormulation(CVRPFormulation):
    """A CVRP without splits.

    Solutions are valid, but split deliveries may be better, so no solver that promises to look for
    the best solution is preferred.
    """

    solvers = ("insertion",)

    is_plain = False
    large_solver = None

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """A CVRP of the customers with a demand."""
        problem = super().formulate(env, instance)
        served = tuple(node for node in problem.customers if instance["demand"][node] > 0)
        return dataclasses.replace(problem, customers=served)
