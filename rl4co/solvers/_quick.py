"""Simple heuristics that take almost no time, for solvers that find no solution in time.

Nothing here is compiled, and there are few steps on large arrays rather than many small ones:
abandoned work may still be busy in another thread and would slow down each step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.registry import SOLVERS
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.sweep import fill_vehicles, join_routes
from rl4co.solvers._geometry import Geometry, as_actions, geometries
from rl4co.solvers.formulations import Formulation, RoutingFormulation, formulation_of

#: Bits of the coordinates on a space-filling curve.
CURVE_BITS = 16


class QuickSolutions(NamedTuple):
    """Actions `[B, T]` and what they come from."""

    actions: Tensor
    method: str


def quick_solutions(env: RL4COEnvBase, instances: TensorDictBase) -> QuickSolutions:
    """Solutions of any problem that solvers are made for, by the simplest one of these."""
    td, formulation = env.reset(instances), formulation_of(env, Formulation)
    if not isinstance(formulation, RoutingFormulation):
        simple = SOLVERS[formulation.solvers[-1]]
        return QuickSolutions(simple(env, td).actions, simple.name)
    if formulation.is_plain and "locs" in td.keys():
        visits = [quick_visits(geometry) for geometry in geometries(env, td)]
        return QuickSolutions(as_actions(visits, td), "space-filling curve")
    simple = SOLVERS["nearest_neighbor"]
    return QuickSolutions(simple(env, td).actions, simple.name)


def quick_visits(geometry: Geometry) -> np.ndarray:
    """A solution: a tour from node 0 on, or such a tour cut into routes where vehicles are full."""
    has_points = bool(np.ptp(geometry.points) > 0)
    order = curve_order(geometry.points) if has_points else nearest_order(geometry)
    tour = np.roll(order, -int((order == 0).argmax()))
    if geometry.demand is None:
        return tour
    return join_routes(fill_vehicles(tour[1:], geometry.demand, geometry.limit))


def curve_order(points: np.ndarray) -> np.ndarray:
    """Nodes `[N]` as Hilbert's curve through the square meets them (Bartholdi and Platzman, 1982).

    On random points some 40 % longer than the best tours.
    """
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    scaled = (points - points.min(axis=0)) / extent * (2**CURVE_BITS - 1)
    x, y = scaled.astype(np.int64).T
    place = np.zeros(len(points), np.int64)
    for bit in reversed(range(CURVE_BITS)):
        right, upper = x >> bit & 1, y >> bit & 1
        place = 4 * place + (3 * right ^ upper)
        # Each quarter of the square has the whole curve in it, the lower ones turned.
        x, y = x & (2**bit - 1), y & (2**bit - 1)
        mirrored = (upper == 0) & (right == 1)
        x, y = (np.where(mirrored, 2**bit - 1 - z, z) for z in (x, y))
        x, y = np.where(upper == 0, y, x), np.where(upper == 0, x, y)
    return np.argsort(place, kind="stable")


def nearest_order(geometry: Geometry) -> np.ndarray:
    """Nodes `[N]` from node 0 on, always to the nearest one that is left, by the matrix."""
    assert geometry.matrix is not None
    left = np.arange(1, len(geometry.matrix))
    order = np.zeros(len(geometry.matrix), np.int64)
    for place in range(1, len(order)):
        nearest = geometry.matrix[order[place - 1], left].argmin()
        order[place] = left[nearest]
        left[nearest] = left[-1]  # the order of those that are left does not matter
        left = left[:-1]
    return order
