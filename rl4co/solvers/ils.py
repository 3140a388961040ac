"""Iterated local search: 2-opt and Or-opt with small kicks (TSP), ruin and recreate (CVRP).

Simple, without any learning, and hard to beat: at equal time it is ahead of ants guided by a
network. Memory grows with the number of nodes, not with its square.
"""

from __future__ import annotations

import time

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.iterated_search import iterate_routes
from rl4co.envs.routing.tsp.insertion import insert_in_order
from rl4co.envs.routing.tsp.iterated_search import iterate_tour
from rl4co.solvers._base import register_solver
from rl4co.solvers._cancellation import is_cancelled
from rl4co.solvers._geometry import Geometry, as_actions, geometries
from rl4co.solvers._routing import time_left
from rl4co.solvers._threads import RecordCost, map_in_threads
from rl4co.solvers.formulations import RoutingFormulation
from rl4co.solvers.savings import savings_solution


@register_solver("ils", reads=RoutingFormulation)
def ils(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    max_iterations: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    initial: Tensor | None = None,
) -> Tensor:
    """Solutions by iterated local search.

    Options:
        max_iterations: Most kicks or ruins; with a number that is reached in time, the same
            arguments give the same solutions.
        seed: Seed of the kicks.
    """
    check_at_least(0, max_iterations=max_iterations)
    began = time.perf_counter()
    instances = geometries(env, td, symmetric=True)
    starts = [None] * len(instances) if initial is None else list(initial.cpu().numpy())
    _compile(instances[0])
    seconds = time_left(began, max_runtime, len(instances))

    def solve(job: tuple[Geometry, np.ndarray | None], record_cost: RecordCost) -> np.ndarray:
        geometry, start = job
        began = time.perf_counter()
        if start is None:
            start = quick_solution(geometry, np.random.default_rng(seed))
        elif geometry.demand is not None:
            # Large solutions of networks are often worse than those of savings.
            start = min(start, savings_solution(geometry), key=geometry.cost)
        before = geometry.cost(start)
        record_cost(before)
        remaining = max(seconds - (time.perf_counter() - began), 0.0)
        if geometry.demand is None:
            improved = iterate_tour(
                geometry.points, start, geometry.matrix,
                max_kicks=max_iterations, max_runtime=remaining, seed=seed,
                on_improvement=record_cost, is_stopped=is_cancelled,
            )  # fmt: skip
        else:
            improved = iterate_routes(
                geometry.points, geometry.demand, geometry.limit, start, geometry.matrix,
                max_ruins=max_iterations, max_runtime=remaining, seed=seed,
                on_improvement=record_cost, is_stopped=is_cancelled,
            )  # fmt: skip
        return improved if geometry.cost(improved) < before else start

    solutions = map_in_threads(
        solve,
        list(zip(instances, starts, strict=True)),
        num_procs,
        description=f"iterated local search ({env.name})",
        progress=progress,
        total=seconds,
    )
    return as_actions(solutions, td)


def quick_solution(geometry: Geometry, rng: np.random.Generator) -> np.ndarray:
    """A solution to begin with: random insertion for tours, savings for routes."""
    if geometry.demand is None:
        return insert_in_order(
            geometry.points, rng.permutation(len(geometry.points)), geometry.matrix
        )
    return savings_solution(geometry)


def _compile(geometry: Geometry) -> None:
    """Compiles the functions that the instances need; a cache on disk makes this quick."""
    points = np.random.default_rng(0).random((8, 2))
    tour = insert_in_order(points, np.arange(8))
    if geometry.demand is None:
        iterate_tour(points, tour, max_kicks=1)
        return
    savings_solution(Geometry(points, demand=np.ones(8), limit=3.0))
    iterate_routes(points, np.ones(8), 3.0, np.array([1, 2, 3, 0, 4, 5, 6, 0, 7]), max_ruins=1)
