"""Sweep: customers by angle around the depot, cut into vehicles; then a short tour for each.

The classical counterpart of learned partitions. Tours are made by insertion, 2-opt and Or-opt.
"""

from __future__ import annotations

import time

from collections.abc import Callable

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.sweep import join_routes, order_route, sweep_partition
from rl4co.envs.routing.tsp.iterated_search import iterate_tour
from rl4co.solvers._base import register_solver
from rl4co.solvers._cancellation import is_cancelled
from rl4co.solvers._geometry import Geometry, as_actions, geometries
from rl4co.solvers._threads import RecordCost, map_in_threads
from rl4co.solvers.formulations import RoutingFormulation

#: Kicks of the iterated search per customer of a route.
KICKS_PER_CUSTOMER = 40


@register_solver("sweep", reads=RoutingFormulation)
def sweep(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    starts: int = 1,
    polish: bool = False,
    progress: bool | None = None,
) -> Tensor:
    """The best of some sweeps; results are reproducible.

    A tour (TSP) is a sweep with a single vehicle, so only the order of its customers counts.

    Options:
        max_runtime: Seconds per instance after which no further sweep is begun, and no further
            tour is polished.
        starts: Sweeps that begin at different angles, of which the best counts.
        polish: Whether the tour of each vehicle is improved by iterated local search.
    """
    check_at_least(1, starts=starts)

    def solve(geometry: Geometry, record_cost: RecordCost) -> np.ndarray:
        end = time.perf_counter() + max_runtime

        def is_over() -> bool:
            return time.perf_counter() > end or is_cancelled()

        best, shortest = None, np.inf
        customers = len(geometry.points) - 1
        demand = np.zeros(customers + 1) if geometry.demand is None else geometry.demand
        for first in np.linspace(0, customers, starts, endpoint=False).astype(int):
            parts = sweep_partition(geometry.points, demand, geometry.limit, int(first))
            routes = [order_route(geometry.points, part) for part in parts]
            if polish:
                routes = [
                    route if is_over() else _polish(geometry.points, route, is_over)
                    for route in routes
                ]
            visits = join_routes(routes)
            if geometry.demand is None:
                visits = np.append(0, visits[:-1])
            cost = geometry.cost(visits)
            if best is None or cost < shortest:
                best, shortest = visits, cost
                record_cost(cost)
            if is_over():
                break
        assert best is not None
        return best

    description = f"sweep ({env.name})"
    jobs = geometries(env, td, symmetric=True, planar=True)
    solutions = map_in_threads(solve, jobs, num_procs, description=description, progress=progress)
    return as_actions(solutions, td)


def _polish(points: np.ndarray, route: np.ndarray, is_over: Callable[[], bool]) -> np.ndarray:
    nodes = np.append(0, route)
    kicks = KICKS_PER_CUSTOMER * len(nodes)
    tour = iterate_tour(points[nodes], np.arange(len(nodes)), max_kicks=kicks, is_stopped=is_over)
    return nodes[tour][1:]
