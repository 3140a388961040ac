"""Conversion of routing problems to integers, for PyVRP and OR-Tools.

A typical length, and a typical time, becomes :data:`RESOLUTION` units. Rounding never makes an
infeasible solution look feasible: lengths, times and loads are rounded up, limits down. Nor does it
exclude solutions that meet a limit exactly, since formulations add half of the environment's
tolerance to all limits, which is more than rounding removes on routes of up to some hundred
legs. Demands that are whole numbers of the units of an instance stay whole numbers.

Costs that solvers report are thus off by up to one unit for each leg.
"""

from __future__ import annotations

import dataclasses

from typing import Any

import numpy as np

from rl4co.core.errors import UnsupportedError
from rl4co.solvers._problem import INFINITY, Array, RoutingProblem, Vehicle

#: Units of a typical (median) length or travel time.
RESOLUTION = 5_000_000
#: Units of the largest length or time, which must not overflow when it is summed and multiplied.
LARGEST = 10**12
#: Units of a capacity, if demands are not whole numbers.
LOAD_RESOLUTION = 10**7
#: Units of all prizes together: finer than the tolerance on prizes, 1e-6.
PRIZE_RESOLUTION = 10**9


def to_integers(problem: RoutingProblem, largest: int = LARGEST) -> RoutingProblem:
    """The problem in integers; `unit` is the value of one unit of cost.

    Args:
        problem: In real numbers.
        largest: Units of the largest length or time, at most.
    """
    problem = _without_negative_lengths(problem)
    unit = _find_unit(problem.length, largest)
    changes: dict[str, Any] = {"length": _up(problem.length / unit)}
    vehicles = [
        dataclasses.replace(vehicle, max_length=_down(vehicle.max_length / unit))
        for vehicle in problem.vehicles
    ]
    cost_unit = unit
    if problem.skip_cost is not None:
        if not any(vehicle.rate for vehicle in vehicles):  # lengths cost nothing
            cost_unit = _find_unit(problem.skip_cost, largest)
        changes["skip_cost"] = _nearest(problem.skip_cost / cost_unit)
    if problem.prize is not None:
        scale = PRIZE_RESOLUTION / (float(problem.prize.sum()) or 1.0)
        changes["prize"] = np.floor(problem.prize * scale).astype(np.int64)
        changes["min_prize"] = int(np.ceil(problem.min_prize * scale))
    changes |= _integer_times(problem, largest)
    loads, vehicles = _integer_loads(problem, vehicles)
    return dataclasses.replace(
        problem, **changes, **loads, vehicles=tuple(vehicles), unit=cost_unit * problem.unit
    )


def _find_unit(values: Array, largest: int) -> float:
    positive = values[values > 0]
    if not positive.size:
        return 1.0
    return max(float(np.median(positive)) / RESOLUTION, float(positive.max()) / largest)


def _without_negative_lengths(problem: RoutingProblem) -> RoutingProblem:
    """Adds a constant to every leg if necessary, and subtracts it from the cost of a solution."""
    lowest = float(problem.length.min())
    if lowest >= 0:
        return problem
    limited = any(vehicle.max_length != INFINITY for vehicle in problem.vehicles)
    if not problem.fixed_legs or limited or problem.objective != "sum":
        raise UnsupportedError(
            f"expected costs that are not negative, got {lowest:g}; only for one vehicle that "
            "visits all nodes can they be shifted without changing the optimum"
        )
    outside = ~np.eye(len(problem.length), dtype=bool)
    (vehicle,) = problem.vehicles
    legs = len(problem.customers) + (vehicle.end is not None)
    return dataclasses.replace(
        problem,
        length=np.where(outside, problem.length - lowest, 0.0),
        constant=problem.constant + vehicle.rate * lowest * legs,
    )


def _integer_times(problem: RoutingProblem, largest: int) -> dict[str, Any]:
    if problem.duration is None or problem.windows is None or problem.service is None:
        return {}
    unit = _find_unit(problem.duration, largest)
    opening, closing = problem.windows.T
    # No route that waits only where it must ends later than this: whatever closes after is open.
    latest = opening.max() + problem.duration.max(1).sum() + problem.service.sum()
    closing = np.where(closing > latest, latest, closing)
    duration, service = _up(problem.duration / unit), _up(problem.service / unit)
    windows = np.stack([_up(opening / unit), np.floor(closing / unit).astype(np.int64)], 1)
    # Rounded up, the longest route may end this much later.
    windows[closing == latest, 1] += 2 * len(service)
    return {"duration": duration, "service": service, "windows": windows}


def _integer_loads(
    problem: RoutingProblem, vehicles: list[Vehicle]
) -> tuple[dict[str, Any], list[Vehicle]]:
    loads = {
        key: value for key in ("delivery", "pickup") if (value := getattr(problem, key)) is not None
    }
    capacity = max((v.capacity for v in vehicles if v.capacity != INFINITY), default=INFINITY)
    if not loads or capacity == INFINITY:
        return {}, vehicles
    are_integers = all((value == np.rint(value)).all() for value in loads.values())
    unit = 1.0 if are_integers else capacity / LOAD_RESOLUTION
    return (
        {key: _up(value / unit) for key, value in loads.items()},
        [dataclasses.replace(v, capacity=_down(v.capacity / unit)) for v in vehicles],
    )


def _up(values: Array) -> Any:
    return np.ceil(values).astype(np.int64)


def _nearest(values: Array) -> Any:
    return np.rint(values).astype(np.int64)


def _down(limit: float) -> float:
    """A limit as an integer, infinity if there is none."""
    return limit if limit == INFINITY else int(np.floor(limit))
