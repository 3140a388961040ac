"""The OR-Tools solver in worker processes; imports neither torch nor TorchRL."""

from __future__ import annotations

import functools
import math
import time

from collections.abc import Callable
from typing import Any

import numpy as np

from ortools.constraint_solver import pywrapcp, routing_enums_pb2
from ortools.util import optional_boolean_pb2

from rl4co.solvers._job_report import is_cancelled, job_start, record_cost, report_incumbent
from rl4co.solvers._problem import INFINITY, Array, Route, RoutingProblem, Vehicle

#: By which costs are multiplied where legs may cost nothing. Lengths then count as a tie-breaker:
#: less than a unit of cost in all, but enough to lead the search, which looks at costs of legs. It
#: is also the number of steps into which weights of lateness are rounded.
FINE = 10**5

Strategy = routing_enums_pb2.FirstSolutionStrategy
Metaheuristic = routing_enums_pb2.LocalSearchMetaheuristic
_ON = optional_boolean_pb2.BOOL_TRUE


def solve_problem(
    problem: RoutingProblem, max_runtime: float, max_solutions: int | None
) -> tuple[list[Route], float] | None:
    """Routes and their cost as OR-Tools computes it; None if it finds no solution.

    Args:
        problem: In integers.
        max_runtime: Seconds, the start of the process and building the model included.
        max_solutions: Most solutions of the local search; None: only time counts.
    """
    if not problem.customers:
        return [], problem.cost([])
    began = job_start(max_runtime)
    model = _Model(problem)
    left = max_runtime - (time.perf_counter() - began)
    parameters = _search_parameters(problem, left, max_solutions)
    model.routing.AddAtSolutionCallback(functools.partial(_report_solution, model))
    solution = model.routing.SolveWithParameters(parameters)
    if solution is None:
        return None
    return model.routes(solution.Value), model.cost(solution.ObjectiveValue())


def _report_solution(model: _Model) -> None:
    """Reports the current solution of the search if it is the best one."""
    # The variable of the cost exists once the search has started.
    cost = model.cost(model.routing.CostVar().Max())
    if record_cost(cost):
        report_incumbent((model.routes(lambda variable: variable.Value()), cost))
    if is_cancelled():
        model.routing.solver().FinishCurrentSearch()


def _search_parameters(
    problem: RoutingProblem, max_runtime: float, max_solutions: int | None
) -> Any:
    parameters = pywrapcp.DefaultRoutingSearchParameters()
    # Guided local search changes costs of legs, which the longest route and lateness hardly notice.
    parameters.local_search_metaheuristic = (
        Metaheuristic.GUIDED_LOCAL_SEARCH
        if problem.objective == "sum"
        else Metaheuristic.TABU_SEARCH
    )
    parameters.time_limit.FromMilliseconds(max(1, math.ceil(max_runtime * 1000)))
    if max_solutions is not None:
        parameters.solution_limit = max_solutions
    if problem.skip_cost is not None:
        # Moves of single customers alone get stuck between sets of customers of a similar worth.
        parameters.local_search_operators.use_inactive_lns = _ON
        parameters.local_search_operators.use_full_path_lns = _ON
    if not any(vehicle.rate for vehicle in problem.vehicles):
        parameters.first_solution_strategy = Strategy.SAVINGS
    return parameters


class _Model:
    """A routing problem in the terms of OR-Tools.

    After the N nodes there is one more at distance 0, where open routes end.
    """

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem = problem
        self.kinds = [k for k, v in enumerate(problem.vehicles) for _ in range(v.count)]
        self.vehicles: list[Vehicle] = [problem.vehicles[kind] for kind in self.kinds]
        virtual_end = len(problem.length)
        ends = [virtual_end if v.end is None else v.end for v in self.vehicles]
        self.manager = pywrapcp.RoutingIndexManager(
            virtual_end + 1, len(self.vehicles), [v.start for v in self.vehicles], ends
        )
        self.routing = pywrapcp.RoutingModel(self.manager)
        self.factor = 1  # units of the objective for a unit of cost
        self._drop_unused()
        self._add_costs()
        self._add_limits()
        self._add_loads()
        self._add_times()
        self._add_orders()
        self._add_choices()
        self._add_forbidden_nodes()

    def cost(self, objective: int) -> float:
        """Cost in units of the environment."""
        return objective / self.factor * self.problem.unit + self.problem.constant

    def routes(self, value_of: Callable[[Any], int]) -> list[Route]:
        """Routes of a solution, from the values of its variables."""
        routes = []
        for vehicle, kind in enumerate(self.kinds):
            nodes, index = [], value_of(self.routing.NextVar(self.routing.Start(vehicle)))
            while not self.routing.IsEnd(index):
                nodes.append(self.manager.IndexToNode(index))
                index = value_of(self.routing.NextVar(index))
            if nodes:
                routes.append(Route(kind, nodes))
        return routes

    # ---------------------------------------------------------------- costs

    def _drop_unused(self) -> None:
        """Removes nodes that are neither customers nor ends; OR-Tools visits all others."""
        ends = {node for v in self.vehicles for node in (v.start, v.end)}
        virtual_end = len(self.problem.length) if None in ends else None
        for node in {*range(len(self.problem.length) + 1)} - {*self.problem.customers, *ends}:
            if node != virtual_end:
                index = self.manager.NodeToIndex(node)
                self.routing.AddDisjunction([index], 0)
                self.routing.solver().Add(self.routing.ActiveVar(index) == 0)

    def _add_costs(self) -> None:
        problem = self.problem
        rates = [0.0 if problem.objective == "max" else v.rate for v in self.vehicles]
        if problem.objective == "sum" and any(rates):
            self._set_arc_costs(problem.length, rates)
            return
        self.factor = FINE
        if problem.objective == "max":
            self._lengths.SetGlobalSpanCostCoefficient(FINE)
        elif problem.objective == "lateness":
            weight = round(problem.lateness_weight * FINE)
            for _, delivery in problem.orders:
                index = self.manager.NodeToIndex(delivery)
                self._lengths.SetCumulVarSoftUpperBound(index, 0, weight)
            rates = [rate * (FINE - weight) for rate in rates]
        # All legs of a solution together come to less than a unit of cost.
        tie = (FINE - 1) / max(self._longest, 1.0)
        self._set_arc_costs(problem.length, [rate + tie for rate in rates])

    def _set_arc_costs(self, length: Array, rates: list[float]) -> None:
        """Costs of legs: lengths times the rate of each vehicle."""
        matrices = {rate: self._transit(np.floor(length * rate)) for rate in set(rates)}
        for number, rate in enumerate(rates):
            self.routing.SetArcCostEvaluatorOfVehicle(matrices[rate], number)

    def _transit(self, matrix: Array) -> int:
        padded = np.pad(matrix.astype(np.int64), (0, 1))  # the virtual end is at distance 0
        return self.routing.RegisterTransitMatrix(padded.tolist())

    @functools.cached_property
    def _longest(self) -> float:
        """Upper bound on the length of a solution, by its legs or by the limits of all vehicles."""
        legs = len(self.problem.customers) + len(self.vehicles)
        limits = sum(vehicle.max_length for vehicle in self.vehicles)
        return min(float(self.problem.length.max()) * legs, limits)

    @functools.cached_property
    def _lengths(self) -> Any:
        """The dimension that counts lengths along routes; it belongs to the model once used."""
        longest = int(self._longest)
        limits = [int(min(v.max_length, longest)) for v in self.vehicles]
        self.routing.AddDimensionWithVehicleCapacity(
            self._transit(self.problem.length), 0, limits, True, "length"
        )
        return self.routing.GetDimensionOrDie("length")

    # ---------------------------------------------------------------- constraints

    def _add_limits(self) -> None:
        if any(vehicle.max_length != INFINITY for vehicle in self.vehicles):
            _ = self._lengths  # making the dimension adds its limits

    def _add_loads(self) -> None:
        problem, routing = self.problem, self.routing
        if problem.delivery is None or self.vehicles[0].capacity == INFINITY:
            return
        capacities = [int(vehicle.capacity) for vehicle in self.vehicles]
        if problem.pickup is None:
            demand = self._per_node(problem.delivery)
            routing.AddDimensionWithVehicleCapacity(demand, 0, capacities, True, "load")
            return
        # All deliveries of a route are on board when it starts and none at its end; the load is
        # what is undelivered and what was picked up.
        to_deliver, change = -problem.delivery, problem.pickup - problem.delivery
        for name, transit in (("to deliver", to_deliver), ("load", change)):
            routing.AddDimensionWithVehicleCapacity(
                self._per_node(transit), 0, capacities, False, name
            )
        undelivered, load = (routing.GetDimensionOrDie(name) for name in ("to deliver", "load"))
        for number in range(len(self.vehicles)):
            start, end = routing.Start(number), routing.End(number)
            undelivered.CumulVar(end).SetMax(0)
            routing.solver().Add(load.CumulVar(start) == undelivered.CumulVar(start))
        if problem.deliveries_first:
            pickups = (problem.pickup > 0).astype(np.int64)
            routing.AddDimension(self._per_node(pickups), 0, len(pickups), True, "picked up")
            picked_up = routing.GetDimensionOrDie("picked up")
            for node in problem.customers:
                if problem.delivery[node] > 0:
                    picked_up.CumulVar(self.manager.NodeToIndex(node)).SetMax(0)

    def _per_node(self, values: Any) -> int:
        """A transit that depends on the node of departure."""
        return self.routing.RegisterUnaryTransitVector([*values.astype(np.int64).tolist(), 0])

    def _add_times(self) -> None:
        problem, routing = self.problem, self.routing
        if problem.duration is None or problem.windows is None or problem.service is None:
            return
        horizon = int(problem.windows[:, 1].max())
        transit = self._transit(problem.duration + problem.service[:, None])
        routing.AddDimension(transit, horizon, horizon, False, "time")
        time = routing.GetDimensionOrDie("time")
        for node in problem.customers:
            opening, closing = problem.windows[node].tolist()
            time.CumulVar(self.manager.NodeToIndex(node)).SetRange(opening, closing)
        for number, vehicle in enumerate(self.vehicles):
            time.CumulVar(routing.Start(number)).SetMin(int(problem.windows[vehicle.start, 0]))
            if vehicle.end is not None:
                time.CumulVar(routing.End(number)).SetMax(int(problem.windows[vehicle.end, 1]))

    def _add_orders(self) -> None:
        problem, routing = self.problem, self.routing
        if not problem.orders:
            return
        routing.AddConstantDimension(1, len(problem.length) + 1, True, "position")
        position, solver = routing.GetDimensionOrDie("position"), routing.solver()
        for pair in problem.orders:
            first, last = (self.manager.NodeToIndex(node) for node in pair)
            routing.AddPickupAndDelivery(first, last)
            solver.Add(routing.VehicleVar(first) == routing.VehicleVar(last))
            solver.Add(position.CumulVar(first) <= position.CumulVar(last))
        if self.vehicles[0].capacity == INFINITY:
            return
        change = np.zeros(len(problem.length))
        for first, last in problem.orders:
            change[first], change[last] = 1, -1
        capacities = [int(vehicle.capacity) for vehicle in self.vehicles]
        routing.AddDimensionWithVehicleCapacity(
            self._per_node(change), 0, capacities, True, "orders on board"
        )

    def _add_choices(self) -> None:
        problem, routing = self.problem, self.routing
        if problem.skip_cost is None:
            return
        for node in problem.customers:
            penalty = int(problem.skip_cost[node]) * self.factor
            routing.AddDisjunction([self.manager.NodeToIndex(node)], penalty)
        if problem.prize is not None and problem.min_prize > 0:
            visited = [routing.ActiveVar(self.manager.NodeToIndex(n)) for n in problem.customers]
            prizes = [int(problem.prize[node]) for node in problem.customers]
            solver = routing.solver()
            solver.Add(solver.ScalProd(visited, prizes) >= int(problem.min_prize))

    def _add_forbidden_nodes(self) -> None:
        for number, vehicle in enumerate(self.vehicles):
            for node in vehicle.forbidden_nodes:
                self.routing.VehicleVar(self.manager.NodeToIndex(node)).RemoveValue(number)
