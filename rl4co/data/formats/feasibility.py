"""Whether a solution keeps the constraints of an instance, exactly and in its own units.

This is independent of the environments: solutions are checked while their files are read.
"""

from __future__ import annotations

import dataclasses

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance

#: Slack of sums of real numbers, relative to the limit: rounding errors of float64.
TOLERANCE = 1e-9

RouteList = Sequence[Sequence[int]]


@dataclasses.dataclass(frozen=True)
class Violation:
    """A broken rule.

    Attributes:
        rule: What holds in every valid solution.
        place: Where it does not.
    """

    rule: str
    place: str

    @property
    def rule_and_place(self) -> str:
        """Both in one text."""
        return f"{self.rule} ({self.place})"


def find_violation(
    instance: BenchmarkInstance, routes: RouteList, tolerance: float = TOLERANCE
) -> Violation | None:
    """The first broken rule, or None for a valid solution.

    Args:
        instance: What is solved.
        routes: Routes without the depot.
        tolerance: Slack relative to each limit.
    """
    return next(_violations(instance, routes, tolerance), None)


def _violations(
    instance: BenchmarkInstance, routes: RouteList, tolerance: float
) -> Iterator[Violation]:
    visits = [*_visits(instance, routes)]
    yield from visits
    if visits:
        return  # the rest is about nodes that exist
    for number, route in enumerate(routes, start=1):
        for rule, place in (
            *_loads(instance, route, tolerance),
            *_lateness(instance, route, tolerance),
            *_length(instance, route, tolerance),
            *_orders(instance, route),
        ):
            yield Violation(rule, f"route {number}: {place}")
    yield from _fixed_edges(instance, routes)


def _visits(instance: BenchmarkInstance, routes: RouteList) -> Iterator[Violation]:
    first = int(instance.layout.has_depot)
    counts = Counter(node for route in routes for node in route)
    outside = [node for node in counts if not first <= node < instance.num_nodes]
    if outside:
        yield Violation(
            f"all nodes are from {first} to {instance.num_nodes - 1}", f"node {outside[0]}"
        )
        return
    if instance.layout.single_route and len(routes) > 1:
        yield Violation("there is one route", f"{len(routes)} routes")
    elif instance.vehicles is not None and len(routes) > instance.vehicles:
        yield Violation(
            f"the number of vehicles is at most {instance.vehicles}", f"{len(routes)} routes"
        )
    twice = [node for node, count in counts.items() if count > 1]
    if twice:
        yield Violation(
            "no node is visited twice",
            f"{instance.name_of(twice[0])} is visited {counts[twice[0]]} times",
        )
    missing = [node for node in range(first, instance.num_nodes) if node not in counts]
    if missing and instance.prizes is None:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield Violation(
            "every node is visited", f"{instance.name_of(missing[0])}{others} is missing"
        )


Finding = Iterator[tuple[str, str]]


def _loads(instance: BenchmarkInstance, route: Sequence[int], tolerance: float) -> Finding:
    demand, backhaul, capacity = instance.demand, instance.backhaul_demand, instance.capacity
    if demand is None or capacity is None:
        return
    nodes = list(route)
    if instance.pairs is not None:
        load = float(np.cumsum(demand[nodes]).max())
    elif backhaul is None:
        load = float(demand[nodes].sum())
    else:
        load = float(max(demand[nodes].sum(), backhaul[nodes].sum()))
        picked_up = np.flatnonzero(backhaul[nodes] > 0)
        delivered = np.flatnonzero(demand[nodes] > 0)
        if len(picked_up) and len(delivered) and picked_up[0] < delivered[-1]:
            late, early = (instance.name_of(nodes[k]) for k in (delivered[-1], picked_up[0]))
            yield "linehauls come before backhauls", f"{late} after {early}"
    if load > capacity * (1 + tolerance):
        yield "no load exceeds the capacity", f"load {load:.10g} of {capacity:.10g}"


def _lateness(instance: BenchmarkInstance, route: Sequence[int], tolerance: float) -> Finding:
    windows = instance.time_windows
    if windows is None:
        return
    service = instance.service_times
    stops = np.array([0, *route, *([] if instance.open_routes else [0])])
    if instance.duration_matrix is not None:
        rides = instance.duration_matrix[stops[:-1], stops[1:]]
    else:
        rides = instance.edge_costs(stops[:-1], stops[1:])
    slack = tolerance * float(windows[0, 1])
    time = float(windows[0, 0])
    for ride, node in zip(rides, stops[1:], strict=True):
        time = max(time + float(ride), float(windows[node, 0]))
        if time > windows[node, 1] + slack:
            place = f"{instance.name_of(node)} at {time:.10g} after {windows[node, 1]:.10g}"
            yield "service begins, and routes end, within the time windows", place
            return
        time += float(service[node]) if service is not None else 0.0


def _length(instance: BenchmarkInstance, route: Sequence[int], tolerance: float) -> Finding:
    limit = instance.max_length
    if limit is None:
        return
    length = instance.cost([route])
    if length > limit * (1 + tolerance):
        yield "no route is longer than allowed", f"length {length:.10g} of {limit:.10g}"


def _orders(instance: BenchmarkInstance, route: Sequence[int]) -> Finding:
    if instance.pairs is None:
        return
    position = {node: k for k, node in enumerate(route)}
    for pickup, delivery in instance.pairs.tolist():
        if (pickup in position) != (delivery in position):
            ends = f"not {instance.name_of(pickup)} and {instance.name_of(delivery)}"
            yield "one route has both pickup and delivery", ends
        elif pickup in position and position[pickup] > position[delivery]:
            ends = f"{instance.name_of(delivery)} comes before {instance.name_of(pickup)}"
            yield "every pickup precedes its delivery", ends


def _fixed_edges(instance: BenchmarkInstance, routes: RouteList) -> Iterator[Violation]:
    if instance.fixed_edges is None:
        return
    edges = {
        frozenset(edge)
        for route in routes
        for edge in zip(route, [*route[1:], route[0]], strict=True)
    }
    for start, end in instance.fixed_edges.tolist():
        if frozenset((start, end)) not in edges:
            yield Violation("the tour has all fixed edges", f"{start} to {end} is missing")
