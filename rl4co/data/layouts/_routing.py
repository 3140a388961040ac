"""Layouts of routing problems: the keys of an environment and the form of its solutions.

The arrays that a layout makes have the keys and shapes of the environment's instances, without a
batch axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rl4co.core.errors import InvalidInstanceError, UnknownNameError, UnsupportedError
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.core.registry import LAYOUTS
from rl4co.data.layouts._base import Layout

if TYPE_CHECKING:
    from rl4co.data.formats.distances import EdgeCosts, FloatArray
    from rl4co.data.formats.instance import BenchmarkInstance

Arrays = dict[str, Any]


class RoutingLayout(Layout):
    """The form of instances and solutions of a routing problem.

    Attributes:
        requires: Fields of :class:`~rl4co.data.formats.BenchmarkInstance` that it must have.
        marks: Fields by any of which instances of this problem are recognised.
        knows: Fields that instances of this problem may have besides. The problem that knows all
            fields of a file, and fewest others, is the one.
        has_depot: Whether node 0 is a depot, which routes do not list.
        returns: Whether the action 0 ends each route.
        single_route: Whether a solution has one route only.
    """

    requires: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[frozenset[str]] = frozenset()
    knows: ClassVar[frozenset[str]] = frozenset()
    has_depot: ClassVar[bool] = True
    returns: ClassVar[bool] = True
    single_route: ClassVar[bool] = False

    def to_arrays(self, instance: BenchmarkInstance, normalize: bool) -> Arrays:
        """The environment's keys of an instance, normalised or in original units."""
        raise NotImplementedError

    def fits(self, features: Set[str], costs: EdgeCosts) -> bool:
        """Whether an instance with these fields (and costs) is one of this problem."""
        return bool(features & self.marks) and features <= self.marks | self.knows


def routing_layout(problem: str) -> RoutingLayout:
    """The layout of a routing problem."""
    kind = LAYOUTS.get(problem)
    if kind is None or not issubclass(kind, RoutingLayout):
        raise UnknownNameError("problem", problem, routing_layouts())
    return kind()


def routing_layouts() -> dict[str, RoutingLayout]:
    """All layouts of routing problems by name."""
    return {name: kind() for name, kind in LAYOUTS.items() if issubclass(kind, RoutingLayout)}


def name_problem(fields: Mapping[str, Any], costs: EdgeCosts) -> str:
    """The environment for an instance with these fields of :class:`BenchmarkInstance`."""
    layouts = routing_layouts()
    known_fields = {field for layout in layouts.values() for field in layout.marks | layout.knows}
    present = {key for key, value in fields.items() if value is not None and value is not False}
    features = present & known_fields
    fitting = [name for name, layout in layouts.items() if layout.fits(features, costs)]
    if not fitting:
        raise InvalidInstanceError(
            f"expected an instance of one of {', '.join(layouts)}, got one with "
            f"{', '.join(sorted(features))} together, which none of them has; name its problem"
        )
    return min(fitting, key=lambda name: len(layouts[name].marks | layouts[name].knows))


# ---------------------------------------------------------------- pieces


def points_of(instance: BenchmarkInstance, normalize: bool) -> FloatArray | None:
    """Coordinates `[N, 2]`; normalised, in the unit square with their aspect ratio."""
    points = instance.coordinates
    if points is None or not normalize:
        return points
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    return (points - points.min(axis=0)) / extent


def matrices_of(instance: BenchmarkInstance, normalize: bool) -> Arrays:
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
    # Large instances do without; reported costs are those of the routes in any case.
    if needed or not (normalize or is_large):
        arrays["cost_matrix"] = instance.costs / unit
    if instance.duration_matrix is not None:
        arrays["duration_matrix"] = instance.duration_matrix / unit
    return arrays


def nodes_of(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    """`locs [N, 2]`, if there are coordinates, and matrices."""
    points = points_of(instance, normalize)
    return {**({} if points is None else {"locs": points}), **matrices_of(instance, normalize)}


def depot_and_customers(instance: BenchmarkInstance, normalize: bool) -> Arrays:
    """`depot [2]` and `locs [n, 2]`, if there are coordinates, and matrices."""
    points = points_of(instance, normalize)
    places = {} if points is None else {"depot": points[0], "locs": points[1:]}
    return {**places, **matrices_of(instance, normalize)}


def or_zeros(values: FloatArray | None, instance: BenchmarkInstance) -> FloatArray:
    """Values of all nodes `[N]`, zeros if there are none."""
    return np.zeros(instance.num_nodes) if values is None else values
