"""Whether a routing problem has a solution: bounds and CP-SAT say no, solvers say yes.

    with Crew() as crew:
        judge = Judge(crew, seconds=5)
        judge.is_impossible(problem), judge.find_routes(problem)

Routes count only if they keep all constraints of the problem in real numbers. Where neither routes
nor a proof are found in time, nothing is known.
"""

from __future__ import annotations

import dataclasses
import time

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from rl4co.solvers._integers import to_integers
from rl4co.solvers._parallel import Crew, map_instances
from rl4co.solvers._problem import INFINITY, Array, Route, RoutingProblem, Vehicle

#: Most customers for proofs where the order of visits matters, and most pairs of a customer and a
#: vehicle where it does not. Larger problems are only tried by heuristics.
MAX_ORDERED, MAX_PACKED = 40, 5_000
#: Up to so many customers CP-SAT is quicker than heuristics.
TINY = 15
#: Most customers whose pairs are compared.
MAX_PAIRED = 300
#: Seconds for one problem at most, and iterations of PyVRP.
SHARE, ITERATIONS = 1.0, 300


class Judge:
    """Says of problems with vehicles of one kind what is known, until its time is over.

    Args:
        crew: Worker processes; None: only bounds say anything, at once.
        seconds: Time for all problems together.
    """

    def __init__(self, crew: Crew | None, seconds: float) -> None:
        self._crew, self._deadline = crew, time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._deadline - time.perf_counter()

    def is_impossible(self, problem: RoutingProblem) -> bool:
        """Whether it is proven that there is no solution."""
        return self.has_solution(problem) is False

    def has_solution(self, problem: RoutingProblem) -> bool | None:
        """Whether there is a solution, by proofs alone; None: that is not known."""
        if needs_more_vehicles(problem):
            return False
        found, impossible = self._prove(problem)
        if found is not None and keeps_all(problem, found):
            return True
        return False if impossible else None

    def find_routes(self, problem: RoutingProblem) -> list[Route] | None:
        """A solution; None: none was found."""
        return self.settle(problem)[0]

    def settle(self, problem: RoutingProblem) -> tuple[list[Route] | None, bool]:
        """A solution by whatever finds one, and whether it is proven that there is none."""
        if needs_more_vehicles(problem):
            return None, True
        is_tiny = len(problem.customers) <= TINY
        found, impossible = self._prove(problem) if is_tiny else (self._try(problem), False)
        if found is None and not impossible:
            found, impossible = (self._try(problem), False) if is_tiny else self._prove(problem)
        return (found if found is not None and keeps_all(problem, found) else None), impossible

    def _try(self, problem: RoutingProblem) -> list[Route] | None:
        """A solution by a heuristic."""
        if find_spec("pyvrp") is not None:
            whole = to_integers(problem)
            found = self._call("_pyvrp_worker:solve_problem", whole, self._share, ITERATIONS, 0)
        else:
            found = self._call("_insertion_worker:solve_problem", problem, self._share)
        return None if found is None else found[0]

    def _prove(self, problem: RoutingProblem) -> tuple[list[Route] | None, bool]:
        """A solution, and whether there is none."""
        if not _is_provable(problem) or find_spec("ortools") is None:
            return None, False
        whole = to_integers(problem)
        return self._call("_feasibility_worker:find_routes", whole, self._share) or (None, False)

    @property
    def _share(self) -> float:
        """Seconds for one problem."""
        return min(self.left, SHARE)

    def _call(self, target: str, *arguments: Any) -> Any:
        """The result of a worker; None if there is no time for it."""
        if self._crew is None or self.left <= 0:
            return None
        with self._crew.at_work():
            (result,) = map_instances(f"rl4co.solvers.{target}", [arguments], progress=False)
        return result


def _is_provable(problem: RoutingProblem) -> bool:
    (vehicle,) = problem.vehicles
    ordered = problem.windows is not None or problem.deliveries_first
    if ordered or vehicle.max_length != INFINITY:
        return len(problem.customers) <= MAX_ORDERED
    return len(problem.customers) * vehicle.count <= MAX_PACKED


def keeps_all(problem: RoutingProblem, routes: Sequence[Route]) -> bool:
    """Whether routes visit every customer once and keep all constraints."""
    visited = sorted(node for route in routes for node in route.nodes)
    return (
        visited == sorted(problem.customers)
        and len(routes) <= problem.vehicles[0].count
        and all(map(problem.feasible, routes))
    )


def with_vehicle(problem: RoutingProblem, **changes: Any) -> RoutingProblem:
    """The problem with other vehicles, which are of one kind."""
    (vehicle,) = problem.vehicles
    return dataclasses.replace(problem, vehicles=(dataclasses.replace(vehicle, **changes),))


# ---------------------------------------------------------------- bounds


def needs_more_vehicles(problem: RoutingProblem) -> bool:
    """Whether total loads, or customers of whom no two fit one route, need more than there are."""
    (vehicle,) = problem.vehicles
    customers = np.array(problem.customers, dtype=np.int64)
    for loads in (problem.delivery, problem.pickup):
        if loads is not None and loads[customers].sum() > vehicle.count * vehicle.capacity:
            return True
    return vehicle.count < len(customers) and len(exclusive_group(problem)) > vehicle.count


def exclusive_group(problem: RoutingProblem) -> tuple[int, ...]:
    """Many customers of whom no two fit one route; none if there are too many to compare."""
    customers = np.array(problem.customers, dtype=np.int64)
    if len(customers) > MAX_PAIRED:
        return ()
    clique = _large_clique(_exclude_each_other(problem, customers))
    return tuple(sorted(customers[clique].tolist()))


def _exclude_each_other(problem: RoutingProblem, customers: Any) -> Any:
    """Pairs of customers that no route can have both of, in any order, `[n, n]`."""
    (vehicle,) = problem.vehicles
    impossible = np.zeros((len(customers), len(customers)), dtype=np.bool_)
    for loads in (problem.delivery, problem.pickup):
        if loads is not None:
            load = loads[customers]
            impossible |= load[:, None] + load[None, :] > vehicle.capacity
    if problem.windows is not None and problem.duration is not None:
        service = np.zeros(len(problem.length)) if problem.service is None else problem.service
        late = _too_late(problem.windows, problem.duration, service, vehicle)
        impossible |= (late & late.T)[np.ix_(customers, customers)]
    if vehicle.max_length != INFINITY:
        ways = _shortest(problem.length)
        length = ways[0][:, None] + ways + (0.0 if vehicle.end is None else ways[:, 0][None, :])
        long = length > vehicle.max_length  # depot, row, column, depot
        impossible |= (long & long.T)[np.ix_(customers, customers)]
    np.fill_diagonal(impossible, False)
    return impossible


def _too_late(windows: Array, duration: Array, service: Array, vehicle: Vehicle) -> Any:
    """Whether column cannot be served after row, however early that was, `[N, N]`."""
    ways = _shortest(duration)
    opening, closing = windows.T
    begin = np.maximum(opening[0] + ways[0], opening)  # [N]
    arrival = (begin + service)[:, None] + ways  # [N, N]
    late = arrival > closing[None, :]
    if vehicle.end is not None:
        leave = np.maximum(arrival, opening[None, :]) + service[None, :]
        late |= leave + ways[:, 0][None, :] > closing[0]
    return late


def _shortest(matrix: Array) -> Array:
    """Shortest ways between all nodes, over others where that is shorter, `[N, N]`."""
    ways = matrix.copy()
    for node in range(len(ways)):
        np.minimum(ways, ways[:, node, None] + ways[None, node, :], out=ways)
    return ways


def _large_clique(pairs: Any) -> list[int]:
    """A large set of rows of which all pairs are marked, grown from each row greedily."""
    order = np.argsort(-pairs.sum(0), kind="stable")
    largest: list[int] = []
    for first in order:
        members = [int(first)]
        candidates = pairs[first].copy()
        for node in order:
            if candidates[node]:
                members.append(int(node))
                candidates &= pairs[node]
        largest = max(largest, members, key=len)
    return largest
