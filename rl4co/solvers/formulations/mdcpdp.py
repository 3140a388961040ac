"""MDCPDP: one vehicle in each depot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._problem import Array, Objective, Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations._routing import (
    Instance,
    RoutingFormulation,
    customers_of,
    lengths,
    orders_of,
)

#: Reward mode of the environment → objective.
OBJECTIVES: dict[str, Objective] = {"minsum": "sum", "minmax": "max", "lateness": "lateness"}


@FORMULATIONS.register("mdcpdp")
class MDCPDPFormulation(RoutingFormulation):
    """Pickups and deliveries by vehicles of several depots.

    By default something else than the total length counts, which not all solvers can minimise.
    """

    solvers = ("ortools", "insertion")

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """A vehicle in each depot, with the objective of the environment."""
        if env.reward_mode not in OBJECTIVES:
            raise UnsupportedError(
                f"expected a reward_mode among {', '.join(OBJECTIVES)} for solvers, "
                f"got {env.reward_mode!r}, which is not linear"
            )
        length = _distances(env, instance)
        customers = customers_of(len(length), len(instance["capacity"]))
        closed = env.problem_mode == "close"
        vehicles = tuple(
            Vehicle(start=depot, end=depot if closed else None, capacity=int(capacity))
            for depot, capacity in enumerate(instance["capacity"])
        )
        return RoutingProblem(
            length,
            customers,
            vehicles,
            OBJECTIVES[env.reward_mode],
            orders=orders_of(customers),
            lateness_weight=float(instance["lateness_weight"][0]),
        )

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """Each depot twice, its customers in between; the last return is not a step."""
        actions: list[int] = []
        for depot, nodes in routes:
            if nodes:
                actions += [depot, *nodes, depot]
        return actions[:-1], actions[-1]

    def decode(self, env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
        """Customers belong to the depot before them; each vehicle leaves once at most."""
        served: dict[int, list[int]] = {}
        depot = 0
        for node in actions:
            if node < len(problem.vehicles):
                depot = node
            else:
                served.setdefault(depot, []).append(node)
        return [Route(vehicle, nodes) for vehicle, nodes in served.items()]

    def count_depots(self, state: Mapping[str, Tensor]) -> int:
        """One for each vehicle."""
        return state["capacity"].shape[-1]


def _distances(env: Any, instance: Instance) -> Array:
    if env.dist_mode == "L2" or "cost_matrix" in instance:
        return lengths(instance)
    apart = np.abs(instance["locs"][:, None] - instance["locs"][None, :])  # [N, N, 2]
    manhattan: Array = apart.sum(-1)
    return manhattan
