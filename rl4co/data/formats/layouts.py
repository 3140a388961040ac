"""What each environment wants to be told about an instance, and how its solutions look.

One :class:`Layout` per environment. The arrays that it makes have the keys and shapes of the
environment's instances, without a batch axis.
"""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.data.formats.distances import EdgeCosts, FloatArray

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How instances and solutions of a problem look.

    Attributes:
        to_arrays: From an instance, and whether to normalise, to the environment's keys.
        requires: Fields of :class:`BenchmarkInstance` that it must have.
        has_depot: Whether node 0 is a depot, which routes do not list.
        returns: Whether the action 0 ends each route.
        single_route: Whether a solution has one route only.
        includes: Problems whose instances are instances of this one as well.
    """

    to_arrays: Callable[[BenchmarkInstance, bool], Arrays]
    requires: tuple[str, ...] = ()
    has_depot: bool = True
    returns: bool = True
    single_route: bool = False
    includes: tuple[str, ...] = ()


def get_layout(problem: str) -> Layout:
    """The layout of a problem."""
    if problem not in LAYOUTS:
        raise UnknownNameError("problem", problem, LAYOUTS)
    return LAYOUTS[problem]


def name_problem(fields: Mapping[str, Any], costs: EdgeCosts) -> str:
    """The environment for an instance with these fields of :class:`BenchmarkInstance`."""
    given = {key for key, value in fields.items() if value is not None and value is not False}
    if "prizes" in given:
        return "op"
    if "pairs" in given:
        return "pdptw" if given & {"demand", "time_windows"} else "pdp"
    if given & {"backhaul_demand", "open_routes", "max_length"}:
        return "mtvrp"
    if "time_windows" in given:
        return "cvrptw"
    if "demand" in given:
        return "cvrp"
    return "tsp" if costs.is_symmetric else "atsp"


# ---------------------------------------------------------------- pieces


def _points(instance: BenchmarkInstance, normalize: bool) -> FloatArray | None:
    """Coordinates `[N, 2]`; normalised, in the unit square with their aspect ratio."""
    points = instance.coordinates
    if points is None or not normalize:
        return points
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    return (points - points.min(axis=0)) / extent


def _matrices(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    """Matrices of costs and times `[N, N]`, where needed."""
    unit = instance.scale if normalize else 1.0
    limited = instance.time_windows is not None or instance.max_length is not None
    needed = limited or not instance.edge_costs.is_euclidean
    is_large = instance.num_nodes > MAX_DENSE_NODES
    if is_large and needed:
        raise UnsupportedError(
            f"expected at most {MAX_DENSE_NODES:,} nodes where costs are no plain Euclidean "
            f"distances, got {instance.num_nodes:,} in {instance.name}; their matrix would be too "
            "large"
        )
    arrays: Arrays = {}
    # Large instances go without: what is reported is the exact cost of the routes in any case.
    if needed or not (normalize or is_large):
        arrays["cost_matrix"] = instance.costs / unit
    if instance.duration_matrix is not None:
        arrays["duration_matrix"] = instance.duration_matrix / unit
    return arrays


def _depot_and_customers(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    """`depot [2]` and `locs [n, 2]`, if there are coordinates, and matrices."""
    points = _points(instance, normalize)
    places = {} if points is None else {"depot": points[0], "locs": points[1:]}
    return {**places, **_matrices(instance, normalize)}


def _or_zeros(values: FloatArray | None, instance: BenchmarkInstance) -> FloatArray:
    return np.zeros(instance.num_nodes) if values is None else values


# ---------------------------------------------------------------- problems


def _tour(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    if instance.fixed_edges is not None:
        raise UnsupportedError(
            f"expected a tour without fixed edges for the environment {instance.problem!r}, got "
            f"{len(instance.fixed_edges)} in {instance.name}; only cost and check know them"
        )
    points = _points(instance, normalize)
    return {**({} if points is None else {"locs": points}), **_matrices(instance, normalize)}


def _asymmetric_tour(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    arrays = _tour(instance, normalize)
    unit = instance.scale if normalize else 1.0
    return {**arrays, "cost_matrix": instance.costs / unit}


def _capacitated(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    assert instance.demand is not None and instance.capacity is not None
    unit = instance.capacity if normalize else 1.0
    arrays = {
        **_depot_and_customers(instance, normalize),
        "demand": instance.demand[1:] / unit,
        "capacity": [float(instance.capacity)],
    }
    if not normalize:
        arrays["vehicle_capacity"] = [float(instance.capacity)]
    return arrays


def _with_time_windows(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    assert instance.time_windows is not None
    unit = instance.scale if normalize else 1.0
    return {
        **_capacitated(instance, normalize),
        "durations": _or_zeros(instance.service_times, instance) / unit,
        "time_windows": instance.time_windows / unit,
    }


def _multi_task(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    assert instance.demand is not None and instance.capacity is not None
    load, length = (instance.capacity, instance.scale) if normalize else (1.0, 1.0)
    points = _points(instance, normalize)
    no_windows = np.array([[0.0, math.inf]] * instance.num_nodes)
    windows = no_windows if instance.time_windows is None else instance.time_windows
    limit = math.inf if instance.max_length is None else instance.max_length
    return {
        **({} if points is None else {"locs": points}),
        **_matrices(instance, normalize),
        "demand_linehaul": instance.demand / load,
        "demand_backhaul": _or_zeros(instance.backhaul_demand, instance) / load,
        "backhaul_class": [1.0],
        "vehicle_capacity": [instance.capacity / load],
        "capacity_original": [float(instance.capacity)],
        "open_route": [instance.open_routes],
        "distance_limit": [limit / length],
        "time_windows": windows / length,
        "service_time": _or_zeros(instance.service_times, instance) / length,
        "speed": [1.0],
    }


def _orienteering(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    assert instance.prizes is not None and instance.max_length is not None
    unit = (float(instance.prizes[1:].max()) or 1.0) if normalize else 1.0
    return {
        **_depot_and_customers(instance, normalize),
        "prize": instance.prizes[1:] / unit,
        "max_length": np.float64(instance.max_length / (instance.scale if normalize else 1.0)),
    }


def _no_environment(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    raise UnsupportedError(
        f"there is no environment for {instance.problem} ({instance.name}); "
        "its costs and the check of its solutions are available"
    )


#: Name of an environment → its layout. PDPTW has no environment; files of it can be read.
LAYOUTS: Mapping[str, Layout] = {
    "tsp": Layout(_tour, has_depot=False, returns=False, single_route=True),
    "atsp": Layout(
        _asymmetric_tour, has_depot=False, returns=False, single_route=True, includes=("tsp",)
    ),
    "cvrp": Layout(_capacitated, ("demand", "capacity")),
    "cvrptw": Layout(_with_time_windows, ("demand", "capacity", "time_windows")),
    "mtvrp": Layout(_multi_task, ("demand", "capacity"), includes=("cvrp", "cvrptw")),
    "op": Layout(_orienteering, ("prizes", "max_length"), single_route=True),
    "pdp": Layout(_depot_and_customers, ("pairs",), returns=False, single_route=True),
    "pdptw": Layout(_no_environment, ("demand", "capacity", "time_windows", "pairs")),
}
