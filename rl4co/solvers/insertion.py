"""Cheapest insertion: a quick and simple heuristic for every routing problem.

Each step inserts the customer (or the order, with both of its nodes) whose best place costs least.
It needs no other package, and its solutions are always valid. Deliveries of the SDVRP are not
split; prizes of the SPCTSP are known in advance.
"""

from __future__ import annotations

import functools

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import NoSolutionError
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.insertion import cheapest_insertion
from rl4co.solvers._base import register_solver
from rl4co.solvers._geometry import Geometry, as_actions, geometries, is_plain
from rl4co.solvers._routing import solve_routing
from rl4co.solvers._threads import RecordCost, map_in_threads
from rl4co.solvers.formulations import RoutingFormulation


@register_solver("insertion", reads=RoutingFormulation)
def insertion(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    progress: bool | None = None,
    max_vehicles: int | None = None,
) -> Tensor:
    """Solutions by cheapest insertion; the same instances give the same solutions.

    Options:
        max_runtime: Seconds per instance after which customers are inserted in the order of the
            instance, each at its best place. Tours and routes with no constraint but the capacity
            need no limit: compiled loops build 35,000 customers in about a second.
        max_vehicles: Most routes of a solution; None: any number.
    """
    if is_plain(env) and "cost_matrix" not in td.keys():
        description = f"insertion ({env.name})"
        insert = functools.partial(insert_cheaply, max_vehicles=max_vehicles)
        solutions = map_in_threads(
            insert, geometries(env, td), num_procs, description=description, progress=progress
        )
        return as_actions(solutions, td)
    return solve_routing(
        env,
        td,
        "rl4co.solvers._insertion_worker:solve_problem",
        (),
        max_runtime=max_runtime,
        prepare=lambda problem: problem,
        obstacle=lambda problem: None,
        num_procs=num_procs,
        label="insertion",
        progress=progress,
        max_vehicles=max_vehicles,
    )


def insert_cheaply(
    geometry: Geometry, record_cost: RecordCost, max_vehicles: int | None = None
) -> np.ndarray:
    """Cheapest insertion of one instance: a tour from node 0 on, or routes."""
    if geometry.demand is None:
        no_demand = np.zeros(len(geometry.points))
        path = cheapest_insertion(geometry.points, no_demand, np.inf, max_routes=1)
        assert path is not None  # nothing limits a tour
        visits = np.append(0, path)
    else:
        routes = cheapest_insertion(
            geometry.points, geometry.demand, geometry.limit, max_routes=max_vehicles
        )
        if routes is None:
            raise NoSolutionError(
                f"expected insertion to find every customer a place in {max_vehicles} routes, got "
                "none for one; try another solver"
            )
        visits = routes
    record_cost(geometry.cost(visits))
    return visits
