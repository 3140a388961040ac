"""Whether every customer of an instance could be served alone: impossible data, by name and rule.

An instance with such a customer has no solution, however many vehicles there are. Whether all
customers can be served *together* is a question for :mod:`rl4co.tasks.infeasibility.explanation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from rl4co.core.errors import InvalidInstanceError

if TYPE_CHECKING:
    from rl4co.data.formats.distances import FloatArray
    from rl4co.data.formats.instance import BenchmarkInstance

#: Slack relative to a limit, about as lenient as the environments.
SLACK = 1e-5
#: Faults that a message lists; the others are counted.
MOST_LISTED = 3


def require_possible(instance: BenchmarkInstance) -> None:
    """Raise InvalidInstanceError if a customer cannot be served, with file, customer and rule."""
    faults = [*find_impossible(instance)]
    if not faults:
        return
    listed, more = "; ".join(faults[:MOST_LISTED]), len(faults) - MOST_LISTED
    raise InvalidInstanceError(
        f"{instance.source or instance.name}: expected customers that a vehicle can serve, got "
        f"{listed}{f' (and {more} more)' if more > 0 else ''}; correct the data"
    )


def find_impossible(instance: BenchmarkInstance) -> Iterator[str]:
    """Reasons why single customers cannot be served, one sentence for each."""
    if instance.prizes is not None or not instance.layout.has_depot or instance.pairs is not None:
        return  # visits are optional, nothing limits a tour, or pairs are served together
    yield from _loads(instance)
    yield from _times(instance)
    yield from _lengths(instance)


def _loads(instance: BenchmarkInstance) -> Iterator[str]:
    for key in ("demand", "backhaul_demand"):
        loads = getattr(instance, key)
        if loads is None or instance.capacity is None:
            continue
        if loads[0]:
            yield f"the depot: {key} {loads[0]:.10g}, which cannot be delivered there"
        for node in _customers(loads < 0):
            yield f"{instance.name_of(node)}: {key} {loads[node]:.10g} below 0"
        for node in _customers(loads > instance.capacity * (1 + SLACK)):
            yield (
                f"{instance.name_of(node)}: {key} {loads[node]:.10g} above the capacity "
                f"{instance.capacity:.10g} of every vehicle"
            )


def _times(instance: BenchmarkInstance) -> Iterator[str]:
    windows, service = instance.time_windows, instance.service_times
    if windows is None:
        return
    opening, closing = windows.T  # [N] each
    service = np.zeros(len(windows)) if service is None else service
    for node in np.flatnonzero(service < 0).tolist():
        yield f"{instance.name_of(node)}: service time {service[node]:.10g} below 0"
    if service[0] > 0:
        yield f"the depot: service time {service[0]:.10g}, but only customers are served"
    for node in np.flatnonzero(opening > closing).tolist():
        yield (
            f"{instance.name_of(node)}: the time window ends at {closing[node]:.10g}, "
            f"before it begins at {opening[node]:.10g}"
        )
    if (opening > closing).any():
        return  # arrivals mean nothing then
    out, home = _rides(instance)
    slack = SLACK * abs(closing[0])
    arrival = opening[0] + out
    late = arrival > closing + slack
    for node in _customers(late):
        yield (
            f"{instance.name_of(node)}: the time window ends at {closing[node]:.10g}, before a "
            f"vehicle can be there at {arrival[node]:.10g} (the depot opens at {opening[0]:.10g})"
        )
    if instance.open_routes:
        return
    end = np.maximum(arrival, opening) + service + home
    for node in _customers((end > closing[0] + slack) & ~late):
        yield (
            f"{instance.name_of(node)}: a vehicle is back at {end[node]:.10g} at the earliest, "
            f"after the depot closes at {closing[0]:.10g}"
        )


def _lengths(instance: BenchmarkInstance) -> Iterator[str]:
    limit = instance.max_length
    if limit is None:
        return
    nodes = np.arange(instance.num_nodes)
    length = instance.edge_costs(np.zeros_like(nodes), nodes)  # [N]
    if not instance.open_routes:
        length = length + instance.edge_costs(nodes, np.zeros_like(nodes))
    for node in _customers(length > limit * (1 + SLACK)):
        yield (
            f"{instance.name_of(node)}: a route of its own is {length[node]:.10g} long, above the "
            f"max_length {limit:.10g}"
        )


def _rides(instance: BenchmarkInstance) -> tuple[FloatArray, FloatArray]:
    """Travel times from the depot and back, `[N]` each."""
    if instance.duration_matrix is not None:
        return instance.duration_matrix[0], instance.duration_matrix[:, 0]
    nodes = np.arange(instance.num_nodes)
    depot = np.zeros_like(nodes)
    return instance.edge_costs(depot, nodes), instance.edge_costs(nodes, depot)


def _customers(wrong: np.ndarray) -> list[int]:
    """Customers for which something holds, from `[N]`."""
    return [int(node) for node in np.flatnonzero(wrong) if node > 0]
