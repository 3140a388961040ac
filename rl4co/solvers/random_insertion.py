"""Random insertion: customers in random order, each where it adds least.

A few percent from optimal tours, 35,000 nodes in seconds, and no matrix of distances. For the CVRP
customers are inserted into routes found by a sweep around the depot.
"""

from __future__ import annotations

import time

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.sweep import join_routes, sweep_partition
from rl4co.envs.routing.tsp.insertion import insert_in_order
from rl4co.solvers._base import register_solver
from rl4co.solvers._cancellation import is_cancelled
from rl4co.solvers._geometry import Geometry, as_actions, geometries
from rl4co.solvers._threads import RecordCost, map_in_threads
from rl4co.solvers.formulations import RoutingFormulation


@register_solver("random_insertion", reads=RoutingFormulation)
def random_insertion(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    runs: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Tensor:
    """The best of some random insertions; results are reproducible.

    Options:
        max_runtime: Seconds per instance after which no further run is begun.
        runs: Insertions with different orders, of which the best counts.
        seed: Seed of the orders.
    """
    check_at_least(1, runs=runs)

    def solve(job: tuple[int, Geometry], record_cost: RecordCost) -> np.ndarray:
        number, geometry = job
        rng = np.random.default_rng((seed, number))
        began = time.perf_counter()
        best, shortest = None, np.inf
        for _ in range(runs):
            visits = insert_randomly(geometry, rng)
            cost = geometry.cost(visits)
            if best is None or cost < shortest:
                best, shortest = visits, cost
                record_cost(cost)
            if time.perf_counter() - began > max_runtime or is_cancelled():
                break
        assert best is not None
        return best

    jobs = list(enumerate(geometries(env, td)))
    description = f"random insertion ({env.name})"
    solutions = map_in_threads(solve, jobs, num_procs, description=description, progress=progress)
    return as_actions(solutions, td)


def insert_randomly(geometry: Geometry, rng: np.random.Generator) -> np.ndarray:
    """One random insertion: a tour from node 0 on, or routes."""
    if geometry.demand is None:
        order = rng.permutation(len(geometry.points))
        tour = insert_in_order(geometry.points, order, geometry.matrix)
        return np.roll(tour, -int((tour == 0).argmax()))
    routes = sweep_partition(
        geometry.points, geometry.demand, geometry.limit,
        start=int(rng.integers(max(len(geometry.points) - 1, 1))),
    )  # fmt: skip
    return join_routes(
        [
            insert_in_order(geometry.points, np.append(0, rng.permutation(route)), geometry.matrix)[
                1:
            ]
            for route in routes
        ]
    )
