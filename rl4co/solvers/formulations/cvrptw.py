"""CVRPTW: vehicles leave when the depot opens."""

from __future__ import annotations

import dataclasses

from typing import Any

from rl4co.core.registry import FORMULATIONS
from rl4co.envs.routing.cvrptw.env import TIME_TOLERANCE
from rl4co.envs.routing.cvrptw.schedule import time_matrix
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers.formulations._routing import SHARE, Instance, lengths
from rl4co.solvers.formulations.cvrp import CVRPFormulation


@FORMULATIONS.register("cvrptw")
class CVRPTWFormulation(CVRPFormulation):
    """A CVRP with time windows."""

    is_plain = False
    large_solver = None

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """A CVRP with travel times, service times and windows."""
        windows = instance["time_windows"].copy()
        windows[:, 1] += SHARE * TIME_TOLERANCE * windows[0, 1]
        return dataclasses.replace(
            super().formulate(env, instance),
            duration=lengths(instance, time_matrix(instance) or ""),
            service=instance["durations"],
            windows=windows,
        )
