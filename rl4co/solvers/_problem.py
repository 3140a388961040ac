"""One description of all routing problems, between environments and solvers.

An environment's instance is *formulated* as a :class:`RoutingProblem` in real numbers
(:mod:`rl4co.solvers.formulations`); solvers read nothing else. Each problem is thus translated
once, not once for each solver. Workers get it by pickle, so nothing here imports torch.
"""

from __future__ import annotations

import dataclasses
import itertools

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

#: `sum`: total cost; `max`: cost of the most expensive route; `lateness`: total cost, blended with
#: the length driven until each delivery.
Objective = Literal["sum", "max", "lateness"]

INFINITY = float("inf")


class Route(NamedTuple):
    """The customers that a vehicle visits, in this order; its ends are not among them."""

    vehicle: int  # position of its kind in RoutingProblem.vehicles
    nodes: list[int]


@dataclasses.dataclass(frozen=True)
class Vehicle:
    """A kind of vehicle, each of which drives one route at most.

    Attributes:
        start: Node at which a route begins.
        end: Node at which it ends; None: at its last customer.
        count: How many vehicles there are.
        capacity: Largest load.
        max_length: Longest route.
        rate: Cost of a unit of length.
        forbidden_nodes: Nodes that it cannot visit.
    """

    start: int = 0
    end: int | None = 0
    count: int = 1
    capacity: float = INFINITY
    max_length: float = INFINITY
    rate: float = 1.0
    forbidden_nodes: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class RoutingProblem:
    """A routing problem with N nodes; what it does not have is None, empty or infinite.

    Attributes:
        length: From row to column `[N, N]`, 0 on the diagonal.
        customers: Nodes to visit.
        vehicles: Kinds of vehicles.
        objective: What is minimised.
        constant: Added to every cost, to agree with the environment's.
        delivery: Load that is brought from the start of a route to each node `[N]`.
        pickup: Load that is brought from each node to the end of its route `[N]`.
        deliveries_first: Whether no delivery may follow a pickup on a route.
        duration: Travel times `[N, N]`; None: time does not matter.
        service: How long a visit takes `[N]`.
        windows: When it may begin `[N, 2]`; vehicles may wait.
        orders: Pairs of nodes: the first comes before the second, on the same route. On the way
            between them each order is a load of 1.
        skip_cost: Cost of leaving a node out `[N]`; None: all customers must be visited.
        prize: What a visit earns `[N]`.
        min_prize: What all visits together must earn.
        lateness_weight: Share of lateness in the objective, between 0 and 1.
        unit: What one unit of cost is worth (after the change to integers).
    """

    length: Array
    customers: tuple[int, ...]
    vehicles: tuple[Vehicle, ...]
    objective: Objective = "sum"
    constant: float = 0.0
    delivery: Array | None = None
    pickup: Array | None = None
    deliveries_first: bool = False
    duration: Array | None = None
    service: Array | None = None
    windows: Array | None = None
    orders: tuple[tuple[int, int], ...] = ()
    skip_cost: Array | None = None
    prize: Array | None = None
    min_prize: float = 0.0
    lateness_weight: float = 0.0
    unit: float = 1.0

    @property
    def fixed_legs(self) -> bool:
        """Whether all solutions have the same number of legs."""
        return sum(vehicle.count for vehicle in self.vehicles) == 1 and self.skip_cost is None

    # ---------------------------------------------------------------- cost

    def cost(self, routes: Sequence[Route]) -> float:
        """Cost of a solution, feasible or not."""
        costs = [self.route_cost(route) for route in routes if route.nodes]
        total = max(costs, default=0.0) if self.objective == "max" else sum(costs)
        return (total + self.skipped_cost(routes)) * self.unit + self.constant

    def route_cost(self, route: Route) -> float:
        """Cost of one route; with lateness, its share of that."""
        legs = [float(self.length[i, j]) for i, j in self.legs(route)]
        cost = self.vehicles[route.vehicle].rate * sum(legs)
        if self.objective != "lateness":
            return cost
        deliveries = {delivery for _, delivery in self.orders}
        arrivals = zip(route.nodes, itertools.accumulate(legs), strict=False)
        late = sum(arrival for node, arrival in arrivals if node in deliveries)
        return (1.0 - self.lateness_weight) * cost + self.lateness_weight * late

    def skipped_cost(self, routes: Sequence[Route]) -> float:
        """Cost of the customers that are left out."""
        if self.skip_cost is None:
            return 0.0
        visited = {node for route in routes for node in route.nodes}
        return sum(float(self.skip_cost[node]) for node in self.customers if node not in visited)

    def legs(self, route: Route) -> Iterator[tuple[int, int]]:
        """The legs of a route, from its start to its end."""
        vehicle = self.vehicles[route.vehicle]
        end = [] if vehicle.end is None else [vehicle.end]
        return itertools.pairwise([vehicle.start, *route.nodes, *end])

    # ---------------------------------------------------------------- feasibility

    def feasible(self, route: Route) -> bool:
        """Whether one route keeps all constraints but those on the visits of all customers."""
        return (
            self.vehicles[route.vehicle].forbidden_nodes.isdisjoint(route.nodes)
            and self._keeps_orders(route)
            and self._keeps_loads(route)
            and self._keeps_length(route)
            and self._keeps_times(route)
        )

    def _keeps_length(self, route: Route) -> bool:
        limit = self.vehicles[route.vehicle].max_length
        return (
            limit == INFINITY or sum(float(self.length[leg]) for leg in self.legs(route)) <= limit
        )

    def _keeps_loads(self, route: Route) -> bool:
        nodes, capacity = route.nodes, self.vehicles[route.vehicle].capacity
        if self.deliveries_first and self.pickup is not None and self.delivery is not None:
            fetches = [bool(self.pickup[node] > 0) for node in nodes]
            fetched_before = itertools.accumulate([False, *fetches], max)
            if any(
                fetched and self.delivery[node] > 0
                for node, fetched in zip(nodes, fetched_before, strict=False)
            ):
                return False
        if capacity == INFINITY:
            return True
        delivery, pickup = self._loads(nodes)
        load = sum(delivery)
        changes = (p - d for d, p in zip(delivery, pickup, strict=True))
        return max(itertools.accumulate(changes, initial=load)) <= capacity

    def _loads(self, nodes: list[int]) -> tuple[list[float], list[float]]:
        """What each node takes from the vehicle and gives to it."""
        delivery = [0.0 if self.delivery is None else float(self.delivery[n]) for n in nodes]
        pickup = [0.0 if self.pickup is None else float(self.pickup[n]) for n in nodes]
        if self.orders:
            first, last = ({pair[side] for pair in self.orders} for side in (0, 1))
            # On the way the load rises at the first node of an order and falls at the second.
            pickup = [float(n in first) - float(n in last) for n in nodes]
        return delivery, pickup

    def _keeps_orders(self, route: Route) -> bool:
        if not self.orders:
            return True
        place = {node: position for position, node in enumerate(route.nodes)}
        return all(
            (first in place) == (last in place)
            and (first not in place or place[first] < place[last])
            for first, last in self.orders
        )

    def _keeps_times(self, route: Route) -> bool:
        if self.duration is None or self.windows is None or self.service is None:
            return True
        time = float(self.windows[self.vehicles[route.vehicle].start, 0])
        for origin, node in self.legs(route):
            time += float(self.service[origin] + self.duration[origin, node])
            if time > self.windows[node, 1]:
                return False
            time = max(time, float(self.windows[node, 0]))
        return True
