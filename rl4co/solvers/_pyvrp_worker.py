"""The part of the PyVRP solver that runs in worker processes; imports neither torch nor TorchRL."""

from __future__ import annotations

import math
import time
import warnings

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyvrp

from pyvrp.stop import MaxIterations, MaxRuntime, MultipleCriteria

from rl4co.solvers._job_report import is_cancelled, job_start, record_cost, report_incumbent
from rl4co.solvers._problem import INFINITY, Route, RoutingProblem, Vehicle

#: Units of the largest capacity. With it an extra customer weighs about as much as an extra leg,
#: and one range of penalties serves loads, lengths and times.
LOAD_UNITS = 10**7

#: Penalties on a unit too much, in units of cost: the first, the least, the highest. The latter
#: makes some units too much, a millionth of a limit, worse than any detour.
FIRST_PENALTY, LEAST_PENALTY, HIGHEST_PENALTY = 500.0, 0.01, 10.0**6
#: Penalties beyond this would overflow.
PENALTY_LIMIT = 10.0**8
#: Solutions after which penalties are adapted: often, since runs of seconds are short.
ADAPT_EVERY = 50

#: Factor of costs where lengths cost nothing. Lengths then count as they are: too
#: little to be traded for a cost, enough to lead the search.
TIES = 10**4


def solve_problem(
    problem: RoutingProblem,
    max_runtime: float,
    max_iterations: int | None,
    seed: int,
    start: Sequence[Route] | None = None,
) -> tuple[list[Route], float] | None:
    """Routes and their cost as PyVRP computes it; None if it finds no feasible solution.

    Args:
        problem: In integers.
        max_runtime: Seconds, the start of the process and building the model included.
        max_iterations: Most iterations of the search; None: only time counts.
        seed: Seed of PyVRP.
        start: Solution to start from; None: PyVRP makes one.
    """
    if not problem.customers:
        return [], problem.cost([])
    began = job_start(max_runtime)
    model = _Model(problem)
    data = model.data()
    left = max(max_runtime - (time.perf_counter() - began), 0.0)
    criteria: list[Any] = [MaxRuntime(left), lambda cost: is_cancelled()]
    if max_iterations is not None:
        criteria.append(MaxIterations(max_iterations))
    stop = MultipleCriteria(criteria)
    ils = pyvrp.IteratedLocalSearchParams(callbacks=_Recorder(model))
    params = pyvrp.SolveParams(ils=ils, penalty=_penalties(model.factor))
    with warnings.catch_warnings():
        # The result below says that no feasible solution was found.
        warnings.simplefilter("ignore", pyvrp.exceptions.PenaltyBoundWarning)
        result = pyvrp.solve(
            data,
            stop,
            seed,
            collect_stats=False,
            params=params,
            initial_solution=None if start is None else model.solution(data, start),
        )
    cost = model.cost(result.best)
    return None if cost is None else (model.routes(result.best), cost)


class _Recorder(pyvrp.IteratedLocalSearchCallbacks):
    """Reports every new best solution, and the first one."""

    def __init__(self, model: _Model) -> None:
        self.model = model

    def on_start(self, ils: Any) -> None:
        self.on_best(ils.initial_solution)

    def on_best(self, best: Any) -> None:
        cost = self.model.cost(best)
        if cost is not None and record_cost(cost):
            report_incumbent((self.model.routes(best), cost))


def _penalties(factor: int) -> Any:
    """Penalty parameters, if a unit of cost is so many of PyVRP's units."""

    class Penalties(pyvrp.PenaltyParams):
        """Starts from a specific penalty; the middle of the range would be far too high."""

        def midpoint_penalties(self, data: Any) -> Any:
            first = FIRST_PENALTY * factor
            return [first] * data.num_load_dimensions, first, first

    return Penalties(
        solutions_between_updates=ADAPT_EVERY,
        min_penalty=LEAST_PENALTY * factor,
        max_penalty=min(HIGHEST_PENALTY * factor, PENALTY_LIMIT),
    )


class _Model:
    """A routing problem in the terms of PyVRP.

    Locations are the nodes, and behind them a place at no distance where open routes end. Where
    prizes are required, all customers are: those left out are "visited" by a second vehicle, for
    which a visit costs what it costs to leave the customer out, and whose capacity is the prize
    that may be left lying.
    """

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.nowhere = len(problem.length)
        self.has_bin = problem.min_prize > 0
        self.counts_lengths = any(vehicle.rate for vehicle in problem.vehicles)
        self.factor = 1 if self.counts_lengths else TIES  # PyVRP's units for a unit of cost
        #: Cost of legs that must not be used: more than any solution without them.
        largest = int(problem.length.max()) * max(1, *(math.ceil(v.rate) for v in problem.vehicles))
        skipped = 0 if problem.skip_cost is None else int(problem.skip_cost.sum())
        self.forbidden = 2 * (len(problem.customers) + 1) * (largest + 1) + skipped * self.factor

    def data(self) -> Any:
        problem, vehicles = self.problem, list(self.problem.vehicles)
        distances = [self._distances(vehicle) for vehicle in vehicles]
        fleet = [self._vehicle_type(v, profile) for profile, v in enumerate(vehicles)]
        if self.has_bin:
            fleet.append(self._bin(len(distances)))
            distances.append(self._bin_distances())
        durations = self._durations()
        return pyvrp.ProblemData(
            locations=[pyvrp.Location(0, 0)] * (self.nowhere + 1),
            clients=[] if problem.orders else [self._client(n) for n in problem.customers],
            depots=[self._depot(node) for node in self._depot_nodes()],
            vehicle_types=fleet,
            distance_matrices=distances,
            duration_matrices=[durations] * len(distances),
            shipments=[
                pyvrp.Shipment(first, last, amount=self._order_size())
                for first, last in problem.orders
            ],
        )

    def solution(self, data: Any, routes: Sequence[Route]) -> Any:
        """Routes in the terms of PyVRP."""
        stops = self._stops()
        plans = [(route.nodes, route.vehicle) for route in routes]
        if self.has_bin:
            visited = {node for route in routes for node in route.nodes}
            left_out = [node for node in self.problem.customers if node not in visited]
            plans.append((left_out, len(self.problem.vehicles)))
        return pyvrp.Solution(
            data,
            [pyvrp.Route(data, [stops[n] for n in nodes], kind) for nodes, kind in plans if nodes],
        )

    def routes(self, solution: Any) -> list[Route]:
        routes = []
        for route in solution.routes():
            if route.vehicle_type() < len(self.problem.vehicles):
                nodes = [self._node(stop) for stop in route if not stop.is_depot()]
                routes.append(Route(route.vehicle_type(), nodes))
        return routes

    def cost(self, solution: Any) -> float | None:
        """Cost in units of the environment; None if the solution is not feasible."""
        if not solution.is_feasible():
            return None
        no_penalties = pyvrp.CostEvaluator([0] * len(solution.excess_load()), 0, 0)
        cost = no_penalties.cost(solution)
        if cost >= self.forbidden:
            return None
        if not self.counts_lengths:
            cost = solution.uncollected_prizes() / self.factor
        return float(cost) * self.problem.unit + self.problem.constant

    def _stops(self) -> dict[int, Any]:
        """Nodes → activities; the inverse of :meth:`_node`."""
        kinds = pyvrp.ActivityType
        if not self.problem.orders:
            return {
                node: pyvrp.Activity(kinds.CLIENT, index)
                for index, node in enumerate(self.problem.customers)
            }
        return {
            node: pyvrp.Activity(kind, index)
            for index, pair in enumerate(self.problem.orders)
            for node, kind in zip(pair, (kinds.PICKUP, kinds.DELIVERY), strict=True)
        }

    def _node(self, stop: Any) -> int:
        if stop.is_client():
            return self.problem.customers[stop.idx]
        return self.problem.orders[stop.idx][0 if stop.is_pickup() else 1]

    # ---------------------------------------------------------------- locations

    def _depot_nodes(self) -> list[int]:
        ends = {
            node for v in self.problem.vehicles for node in (v.start, v.end) if node is not None
        }
        return [*sorted(ends), self.nowhere]

    def _depot(self, node: int) -> Any:
        if self.problem.windows is None or node == self.nowhere:
            return pyvrp.Depot(node)
        opening, closing = self.problem.windows[node].tolist()
        return pyvrp.Depot(node, tw_early=opening, tw_late=closing)

    def _client(self, node: int) -> Any:
        problem = self.problem
        options: dict[str, Any] = {}
        if problem.delivery is not None:
            options["delivery"] = [int(problem.delivery[node]) * self._load_factor()]
        if problem.pickup is not None:
            options["pickup"] = [int(problem.pickup[node]) * self._load_factor()]
        if problem.windows is not None and problem.service is not None:
            opening, closing = problem.windows[node].tolist()
            options |= {"tw_early": opening, "tw_late": closing}
            options["service_duration"] = int(problem.service[node])
        if self.has_bin and problem.prize is not None:
            options["delivery"] = [int(problem.prize[node])]
        elif problem.skip_cost is not None:
            options |= {"required": False, "prize": int(problem.skip_cost[node]) * self.factor}
        return pyvrp.Client(node, **options)

    # ---------------------------------------------------------------- vehicles

    def _vehicle_type(self, vehicle: Vehicle, profile: int) -> Any:
        depots = self._depot_nodes()
        options: dict[str, Any] = {}
        if self.has_bin:
            assert self.problem.prize is not None
            options["capacity"] = [int(self.problem.prize.sum())]
        elif vehicle.capacity != INFINITY and (self.problem.orders or self._has_loads()):
            options["capacity"] = [int(vehicle.capacity) * self._load_factor()]
        if vehicle.max_length != INFINITY:
            options["max_distance"] = int(vehicle.max_length * (vehicle.rate or 1.0))
        return pyvrp.VehicleType(
            vehicle.count,
            start_depot=depots.index(vehicle.start),
            end_depot=depots.index(self.nowhere if vehicle.end is None else vehicle.end),
            unit_distance_cost=1 if vehicle.rate or not self.counts_lengths else 0,
            profile=profile,
            **options,
        )

    def _distances(self, vehicle: Vehicle) -> Any:
        """Distances times the rate of a vehicle, `[N + 1, N + 1]`."""
        problem = self.problem
        distances = np.rint(problem.length * (vehicle.rate or 1.0)).astype(np.int64)
        distances[:, sorted(vehicle.forbidden_nodes)] = self.forbidden
        if problem.deliveries_first and problem.pickup is not None:
            assert problem.delivery is not None
            distances[np.ix_(problem.pickup > 0, problem.delivery > 0)] = self.forbidden
        np.fill_diagonal(distances, 0)
        return np.pad(distances, (0, 1))  # the virtual end is at distance 0

    def _durations(self) -> Any:
        if self.problem.duration is None:
            return np.zeros((self.nowhere + 1, self.nowhere + 1), dtype=np.int64)
        return np.pad(self.problem.duration, (0, 1))

    def _bin(self, profile: int) -> Any:
        assert self.problem.prize is not None
        left_lying = int(self.problem.prize.sum() - self.problem.min_prize)
        nowhere = self._depot_nodes().index(self.nowhere)
        return pyvrp.VehicleType(
            1, [left_lying], start_depot=nowhere, end_depot=nowhere, profile=profile
        )

    def _bin_distances(self) -> Any:
        """The cost of skipping a customer, for each start of the "vehicle"."""
        assert self.problem.skip_cost is not None
        distances = np.tile(np.append(self.problem.skip_cost, 0), (self.nowhere + 1, 1))
        distances[:, [v.start for v in self.problem.vehicles]] = 0
        np.fill_diagonal(distances, 0)
        return distances

    # ---------------------------------------------------------------- loads

    def _has_loads(self) -> bool:
        return self.problem.delivery is not None or self.problem.pickup is not None

    def _order_size(self) -> list[int]:
        limited = any(vehicle.capacity != INFINITY for vehicle in self.problem.vehicles)
        return [self._load_factor()] if limited else []

    def _load_factor(self) -> int:
        """Factor of loads, see :data:`LOAD_UNITS`."""
        capacity = max(v.capacity for v in self.problem.vehicles)
        return 1 if capacity == INFINITY else max(1, LOAD_UNITS // max(int(capacity), 1))
