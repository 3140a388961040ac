"""CVRPMVC: no more vehicles than there are."""

from __future__ import annotations

import dataclasses

from typing import Any

import numpy as np

from rl4co.core.registry import FORMULATIONS
from rl4co.envs.routing.cvrpmvc.env import FLEET_TOLERANCE
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers.formulations._routing import Instance
from rl4co.solvers.formulations.cvrp import CVRPFormulation


@FORMULATIONS.register("cvrpmvc")
class CVRPMVCFormulation(CVRPFormulation):
    """A CVRP with a small fleet.

    The environment takes more vehicles where no customer fits one any more; such solutions are not
    looked for.
    """

    is_plain = False
    large_solver = None

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """A CVRP with a limited number of vehicles."""
        problem = super().formulate(env, instance)
        (fleet,) = problem.vehicles
        available = int(np.floor(instance["max_vehicle"][0] + FLEET_TOLERANCE))
        fleet = dataclasses.replace(fleet, count=min(available, fleet.count))
        return dataclasses.replace(problem, vehicles=(fleet,))
