"""A CP-SAT model that proves or disproves feasibility; imports neither torch nor TorchRL.

Costs do not matter. The model packs customers into vehicles and, where times, lengths or an order
limit routes, also sequences them. It is meant for some dozen customers with vehicles of one kind,
to prove what heuristics cannot.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ortools.sat.python import cp_model

from rl4co.solvers._problem import INFINITY, Route, RoutingProblem

#: Threads; one is deterministic.
NUM_WORKERS = 1


def find_routes(problem: RoutingProblem, max_runtime: float) -> tuple[list[Route] | None, bool]:
    """Routes that satisfy all constraints or None, and whether it is proven that none exist.

    Args:
        problem: In integers, with vehicles of one kind, without pickup-and-delivery pairs and with
            all customers mandatory.
        max_runtime: Seconds.
    """
    model = _Model(problem)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(max_runtime, 0.01)
    solver.parameters.num_workers = NUM_WORKERS
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return model.routes(solver), False
    return None, status == cp_model.INFEASIBLE


class _Model:
    """Customers in vehicles, and their sequence where it matters."""

    def __init__(self, problem: RoutingProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        (self.vehicle,) = problem.vehicles
        self.customers = problem.customers
        self.legs: dict[tuple[int, int], Any] = {}
        self._pack()
        if self._order_matters():
            self._add_legs()
            self._limit_times()
            self._limit_lengths()

    def routes(self, solver: Any) -> list[Route]:
        """The routes of a solution; in the order of customers where that does not matter."""
        if not self.legs:
            groups = [
                [n for n in self.customers if solver.boolean_value(self.inside[n, k])]
                for k in range(self.vehicle.count)
            ]
            return [Route(0, nodes) for nodes in groups if nodes]
        after = {i: j for (i, j), leg in self.legs.items() if i and solver.boolean_value(leg)}
        routes = []
        for (origin, node), leg in self.legs.items():
            if origin == 0 and solver.boolean_value(leg):
                nodes = [node]
                while after[nodes[-1]] != 0:
                    nodes.append(after[nodes[-1]])
                routes.append(Route(0, nodes))
        return routes

    # ---------------------------------------------------------------- packing

    def _pack(self) -> None:
        """Each customer in one vehicle, and no load above the capacity."""
        model, vehicles = self.model, range(self.vehicle.count)
        self.inside = {(n, k): model.new_bool_var("") for n in self.customers for k in vehicles}
        for index, node in enumerate(self.customers):
            model.add_exactly_one(self.inside[node, k] for k in vehicles)
            # Vehicles are interchangeable: customer k is in one of the first k + 1.
            for k in vehicles[index + 1 :]:
                model.add(self.inside[node, k] == 0)
        for loads in (self.problem.delivery, self.problem.pickup):
            if loads is None or self.vehicle.capacity == INFINITY:
                continue
            for k in vehicles:
                carried = sum(int(loads[n]) * self.inside[n, k] for n in self.customers)
                model.add(carried <= int(self.vehicle.capacity))

    # ---------------------------------------------------------------- sequencing

    def _order_matters(self) -> bool:
        timed = self.problem.windows is not None
        return timed or self.vehicle.max_length != INFINITY or self.problem.deliveries_first

    def _add_legs(self) -> None:
        """Legs that form routes; both ends of a leg are in the same vehicle."""
        model, problem = self.model, self.problem
        nodes = [0, *self.customers]
        fetches = np.zeros(len(problem.length)) if problem.pickup is None else problem.pickup
        for i in nodes:
            for j in nodes:
                backwards = (
                    problem.deliveries_first
                    and problem.delivery is not None
                    and fetches[i] > 0
                    and problem.delivery[j] > 0
                )
                if i != j and not backwards:
                    self.legs[i, j] = model.new_bool_var("")
        place = {node: index for index, node in enumerate(nodes)}
        model.add_multiple_circuit([(place[i], place[j], leg) for (i, j), leg in self.legs.items()])
        model.add(sum(leg for (i, _), leg in self.legs.items() if i == 0) <= self.vehicle.count)
        for (i, j), leg in self.legs.items():
            if i and j:
                for k in range(self.vehicle.count):
                    model.add(self.inside[i, k] == self.inside[j, k]).only_enforce_if(leg)

    def _limit_times(self) -> None:
        problem = self.problem
        if problem.windows is None or problem.duration is None or problem.service is None:
            return
        ends = problem.windows.astype(np.int64).tolist()
        spans = {node: (ends[node][0], ends[node][1]) for node in self.customers}
        rides = problem.duration + problem.service[:, None]  # from the start of a service
        opening, closing = map(int, problem.windows[0])
        self._accumulate(spans, rides, opening, closing)

    def _limit_lengths(self) -> None:
        if self.vehicle.max_length != INFINITY:
            limit = int(self.vehicle.max_length)
            spans = dict.fromkeys(self.customers, (0, limit))
            self._accumulate(spans, self.problem.length, 0, limit)

    def _accumulate(
        self, spans: dict[int, tuple[int, int]], steps: Any, start: int, limit: int
    ) -> None:
        """A quantity that grows along routes, from `start` to at most `limit` at the depot.

        Args:
            spans: Least and largest value at each customer; waiting brings it up to the least.
            steps: Increase along each leg `[N, N]`.
            start: Value at the departure from the depot.
            limit: Largest value at the end, unless routes end at their last customer.
        """
        model = self.model
        if any(least > most for least, most in spans.values()):
            model.add_bool_or([])  # an empty span has no value
            return
        value = {n: model.new_int_var(*span, "") for n, span in spans.items()}
        for (i, j), leg in self.legs.items():
            step = int(steps[i, j])
            if i == 0:
                model.add(value[j] >= start + step).only_enforce_if(leg)
            elif j:
                model.add(value[j] >= value[i] + step).only_enforce_if(leg)
            elif self.vehicle.end is not None:
                model.add(value[i] + step <= limit).only_enforce_if(leg)
