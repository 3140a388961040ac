"""Whether a routing problem has a solution: bounds and CP-SAT disprove it, heuristics find one.

    with WorkerPool() as pool:
        checker = FeasibilityChecker(pool, seconds=5)
        checker.is_infeasible(problem), checker.find_routes(problem)

Routes count only if they satisfy all constraints of the problem in real numbers. If neither routes
nor a proof are found in time, the answer is unknown.
"""

from __future__ import annotations

import dataclasses
import time

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rl4co.solvers._feasibility.bounds import needs_more_vehicles
from rl4co.solvers._integers import to_integers
from rl4co.solvers._problem import INFINITY, Route, RoutingProblem
from rl4co.solvers._worker_pool import WorkerPool, map_instances

#: Most customers for proofs where the order of visits matters, and most pairs of a customer and a
#: vehicle where it does not. For larger problems there are only heuristics.
MAX_ORDERED, MAX_PACKED = 40, 5_000
#: Up to this many customers, CP-SAT is faster than heuristics.
MAX_EXACT_FIRST = 15
#: Most seconds for one problem, and iterations of PyVRP.
MAX_SECONDS, ITERATIONS = 1.0, 300


class FeasibilityChecker:
    """Checks problems with vehicles of one kind, until its time is over.

    Args:
        pool: Worker processes; None: only bounds are computed.
        seconds: Time for all problems together.
    """

    def __init__(self, pool: WorkerPool | None, seconds: float) -> None:
        self._pool, self._deadline = pool, time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.perf_counter()

    def is_infeasible(self, problem: RoutingProblem) -> bool:
        """Whether it is proven that there is no solution."""
        return self.has_solution(problem) is False

    def has_solution(self, problem: RoutingProblem) -> bool | None:
        """Whether there is a solution, by proofs alone; None: unknown."""
        if needs_more_vehicles(problem):
            return False
        routes, infeasible = self._prove(problem)
        if routes is not None and satisfies_all(problem, routes):
            return True
        return False if infeasible else None

    def find_routes(self, problem: RoutingProblem) -> list[Route] | None:
        """A solution; None: none was found."""
        return self.check(problem)[0]

    def check(self, problem: RoutingProblem) -> tuple[list[Route] | None, bool]:
        """A solution by an exact or heuristic method, and whether it is proven that none exists."""
        if needs_more_vehicles(problem):
            return None, True
        is_small = len(problem.customers) <= MAX_EXACT_FIRST
        routes, infeasible = self._prove(problem) if is_small else (self._search(problem), False)
        if routes is None and not infeasible:
            routes, infeasible = (
                (self._search(problem), False) if is_small else self._prove(problem)
            )
        is_valid = routes is not None and satisfies_all(problem, routes)
        return (routes if is_valid else None), infeasible

    def _search(self, problem: RoutingProblem) -> list[Route] | None:
        """A solution by a heuristic."""
        if find_spec("pyvrp") is not None:
            integers = to_integers(problem)
            result = self._call(
                "_pyvrp_worker:solve_problem", integers, self._seconds, ITERATIONS, 0
            )
        else:
            result = self._call("_insertion_worker:solve_problem", problem, self._seconds)
        return None if result is None else result[0]

    def _prove(self, problem: RoutingProblem) -> tuple[list[Route] | None, bool]:
        """A solution by CP-SAT, and whether none exists."""
        if not _is_provable(problem) or find_spec("ortools") is None:
            return None, False
        target = "_feasibility.cpsat_worker:find_routes"
        return self._call(target, to_integers(problem), self._seconds) or (None, False)

    @property
    def _seconds(self) -> float:
        """Seconds for one problem."""
        return min(self.left, MAX_SECONDS)

    def _call(self, target: str, *arguments: Any) -> Any:
        """The result of a worker; None if no time is left."""
        if self._pool is None or self.left <= 0:
            return None
        with self._pool.running():
            (result,) = map_instances(f"rl4co.solvers.{target}", [arguments], progress=False)
        return result


def _is_provable(problem: RoutingProblem) -> bool:
    (vehicle,) = problem.vehicles
    is_ordered = problem.windows is not None or problem.deliveries_first
    if is_ordered or vehicle.max_length != INFINITY:
        return len(problem.customers) <= MAX_ORDERED
    return len(problem.customers) * vehicle.count <= MAX_PACKED


def satisfies_all(problem: RoutingProblem, routes: Sequence[Route]) -> bool:
    """Whether routes visit every customer once and satisfy all constraints."""
    visited = sorted(node for route in routes for node in route.nodes)
    return (
        visited == sorted(problem.customers)
        and len(routes) <= problem.vehicles[0].count
        and all(map(problem.feasible, routes))
    )


def with_vehicle(problem: RoutingProblem, **changes: Any) -> RoutingProblem:
    """The problem with changed vehicles, which are of one kind."""
    (vehicle,) = problem.vehicles
    return dataclasses.replace(problem, vehicles=(dataclasses.replace(vehicle, **changes),))
