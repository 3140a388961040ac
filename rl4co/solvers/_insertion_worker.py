"""The part of the insertion heuristic that runs in worker processes; imports no torch."""

from __future__ import annotations

import dataclasses
import itertools
import time

from typing import Any

import numpy as np

from rl4co.solvers._job_report import is_cancelled, job_start
from rl4co.solvers._problem import Route, RoutingProblem

#: A customer, or the two nodes of an order.
Job = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Insertion:
    """The best insertion of a job into a route."""

    route: Route  # with the job
    added: float  # cost that it adds
    length: float  # length that it adds, to break ties


def solve_problem(problem: RoutingProblem, max_runtime: float) -> tuple[list[Route], float] | None:
    """Routes and their cost; None if some customer does not fit.

    Args:
        problem: In real numbers.
        max_runtime: Seconds after which customers are inserted in the order of the instance.
    """
    deadline = job_start(max_runtime) + max_runtime
    routes = _Construction(problem, deadline).run()
    if routes is None and problem.delivery is not None:
        # Vehicles are scarce: large customers go first.
        routes = _Construction(problem, deadline, largest_first=True).run()
    return None if routes is None else (routes, problem.cost(routes))


class _Construction:
    """Routes under construction: the used ones, and one without customers for each kind left."""

    def __init__(
        self, problem: RoutingProblem, deadline: float, largest_first: bool = False
    ) -> None:
        self.problem, self.deadline, self.largest_first = problem, deadline, largest_first
        orders = {node for pair in problem.orders for node in pair}
        self.jobs: list[Job] = [*problem.orders]
        self.jobs += [(node,) for node in problem.customers if node not in orders]
        self.left = [vehicle.count for vehicle in problem.vehicles]
        self.routes: dict[int, Route] = {}
        self.costs: dict[int, float] = {}
        self.places: dict[int, dict[Job, _Insertion]] = {}  # route → job → place
        self.numbers = itertools.count()
        self.empty = [-1] * len(self.left)  # number of the unused route of each kind
        for kind in range(len(self.left)):
            self._open_route(kind)

    def run(self) -> list[Route] | None:
        left_out: list[Job] = []
        while self.jobs:
            if self._is_late():
                self._look_at_first_job()
            choice = self._choose()
            if choice is not None:
                self._insert(*choice)
            elif self._is_late() and self.problem.skip_cost is not None:
                left_out.append(self.jobs.pop(0))
            else:
                break
        self.jobs += left_out
        if self.jobs and (self.problem.skip_cost is None or self._prize_missing() > 0):
            return None
        return [route for route in self.routes.values() if route.nodes]

    def _is_late(self) -> bool:
        return time.perf_counter() > self.deadline or is_cancelled()

    def _look_at_first_job(self) -> None:
        """Forgets the insertions of all jobs but the first, which takes a fraction of the time."""
        job = self.jobs[0]
        best = {number: self._best_place(number, job) for number in self.routes}
        self.places = {number: {job: place} for number, place in best.items() if place is not None}

    # ---------------------------------------------------------------- choice

    def _choose(self) -> tuple[int, Job] | None:
        """The route and the job to put into it next; None: stop."""
        best: tuple[Any, int, Job] | None = None
        highest, missing = max(self.costs.values()), self._prize_missing()
        for number, places in self.places.items():
            for job, place in places.items():
                key = self._rank(number, job, place, highest, missing)
                if key is not None and (best is None or key < best[0]):
                    best = (key, number, job)
        return None if best is None else best[1:]

    def _rank(
        self, number: int, job: Job, place: _Insertion, highest: float, missing: float
    ) -> Any:
        """Smaller is better; None: better left out."""
        problem, added = self.problem, place.added
        if problem.objective == "max":
            added = max(self.costs[number] + added - highest, 0.0)
        if self.largest_first and problem.delivery is not None:
            return -float(problem.delivery[job[0]]), added, place.length
        if problem.skip_cost is None:
            return added, place.length
        worth = float(problem.skip_cost[job[0]])
        if not any(vehicle.rate for vehicle in problem.vehicles):
            # Length is the scarce resource.
            return None if worth <= 0 else place.length / worth
        gain = worth - added
        if gain > 0:
            return 0, -gain
        if missing <= 0 or problem.prize is None:
            return None
        prize = float(problem.prize[job[0]])
        return None if prize <= 0 else (1, -gain / min(prize, missing))

    def _prize_missing(self) -> float:
        if self.problem.prize is None:
            return 0.0
        nodes = [node for route in self.routes.values() for node in route.nodes]
        return self.problem.min_prize - float(self.problem.prize[nodes].sum())

    # ---------------------------------------------------------------- routes

    def _insert(self, number: int, job: Job) -> None:
        place = self.places[number][job]
        self.jobs.remove(job)
        for places in self.places.values():
            places.pop(job, None)
        if number in self.empty:
            self._open_route(place.route.vehicle)
        self.routes[number] = place.route
        self._update(number)

    def _open_route(self, kind: int) -> None:
        if self.left[kind] > 0:
            self.left[kind] -= 1
            number = self.empty[kind] = next(self.numbers)
            self.routes[number] = Route(kind, [])
            self._update(number)
        else:
            self.empty[kind] = -1

    def _update(self, number: int) -> None:
        route = self.routes[number]
        self.costs[number] = self.problem.route_cost(route) if route.nodes else 0.0
        jobs = () if self._is_late() else self.jobs
        best = {job: self._best_place(number, job) for job in jobs}
        self.places[number] = {job: place for job, place in best.items() if place is not None}

    def _best_place(self, number: int, job: Job) -> _Insertion | None:
        route = self.routes[number]
        added, positions = _insertions(self.problem, route, job)
        for index in np.argsort(added, kind="stable"):
            nodes = list(route.nodes)
            # From the back, so that earlier positions stay valid.
            for node, position in reversed(list(zip(job, positions[index], strict=True))):
                nodes.insert(int(position), node)
            longer = Route(route.vehicle, nodes)
            if self.problem.feasible(longer):
                cost = self.problem.route_cost(longer) - self.costs[number]
                return _Insertion(longer, cost, float(added[index]))
        return None


def _insertions(problem: RoutingProblem, route: Route, job: Job) -> tuple[Any, Any]:
    """Added length of every insertion of a job into a route `[P]`, and positions `[P, nodes]`."""
    vehicle = problem.vehicles[route.vehicle]
    before = np.array([vehicle.start, *route.nodes])  # [L + 1]
    after = np.array([*route.nodes, -1 if vehicle.end is None else vehicle.end])
    ends = after == -1  # a leg that is not driven
    length = problem.length

    def leg(origin: Any, destination: Any) -> Any:
        return np.where(ends, 0.0, length[origin, destination])

    old = leg(before, after) if route.nodes else np.zeros(1)  # an empty route is not driven
    places = np.arange(len(before))
    if len(job) == 1:
        return length[before, job[0]] + leg(job[0], after) - old, places[:, None]
    first, last = job
    apart_first = length[before, first] + leg(first, after) - old
    apart_last = length[before, last] + leg(last, after) - old
    together = length[before, first] + length[first, last] + leg(last, after) - old
    table = apart_first[:, None] + apart_last[None, :]  # [L + 1, L + 1]
    np.fill_diagonal(table, together)
    rows, columns = np.triu_indices(len(before))  # the second node never in front of the first
    return table[rows, columns], np.stack([rows, columns], 1)
