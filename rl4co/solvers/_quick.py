"""Solutions at once, for when time is over before a solver has any: nothing here is compiled.

Plain problems only, see :func:`~rl4co.solvers._geometry.is_plain`: tours, and routes that nothing
but the capacity limits.
"""

from __future__ import annotations

import numpy as np

from rl4co.envs.routing.cvrp.sweep import fill_vehicles, join_routes
from rl4co.solvers._geometry import Geometry


def nearest_tour(geometry: Geometry) -> np.ndarray:
    """A tour `[N]` from node 0, always to the nearest node that is left."""
    left = np.arange(1, len(geometry.points))
    tour = np.zeros(len(geometry.points), np.int64)
    for place in range(1, len(tour)):
        here = tour[place - 1]
        if geometry.matrix is None:
            away = ((geometry.points[left] - geometry.points[here]) ** 2).sum(-1)
        else:
            away = geometry.matrix[here, left]
        nearest = away.argmin()
        tour[place] = left[nearest]
        left[nearest] = left[-1]  # the order of those that are left does not matter
        left = left[:-1]
    return tour


def quick_visits(geometry: Geometry) -> np.ndarray:
    """A solution: a tour from node 0 on, or such a tour cut into routes where vehicles are full."""
    tour = nearest_tour(geometry)
    if geometry.demand is None:
        return tour
    return join_routes(fill_vehicles(tour[1:], geometry.demand, geometry.limit))
