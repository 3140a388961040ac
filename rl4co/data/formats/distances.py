"""Cost of travelling between two nodes, by the rules of the benchmark libraries.

Each rule is a distance and its rounding *per edge*: sums of rounded distances differ from
rounded sums, and best-known values are the former. All arithmetic is float64. Costs are functions
of pairs of nodes, so that a tour through many nodes needs no matrix of all distances.

Reference: G. Reinelt, TSPLIB95, http://comopt.ifi.uni-heidelberg.de/software/TSPLIB95
"""

from __future__ import annotations

import dataclasses
import functools
import math

from collections.abc import Callable, Mapping

import numpy as np

from numpy.typing import NDArray

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.core.memory import exceeds_memory

#: Costs that are computed at once.
_BLOCK = 2**22

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Radius of the earth in km and pi, with the digits of TSPLIB: others give other distances.
_EARTH_RADIUS, _PI = 6378.388, 3.141592


@dataclasses.dataclass(frozen=True)
class Rounding:
    """A rule that rounds the distance of an edge.

    Attributes:
        name: Its name in this library.
        apply: From distances to costs.
        decimals: Digits after the point that a cost can have; None: any number.
    """

    name: str
    apply: Callable[[FloatArray], FloatArray]
    decimals: int | None


#: Names for the argument `rounding` of the readers.
ROUNDINGS: Mapping[str, Rounding] = {
    rule.name: rule
    for rule in (
        Rounding("exact", lambda d: d, None),
        Rounding("nearest", lambda d: np.floor(d + 0.5), 0),
        Rounding("up", np.ceil, 0),
        Rounding("down", np.floor, 0),
        # The 12th DIMACS challenge (2022) and CVRPLIB, for instances with time windows.
        Rounding("one_decimal", lambda d: np.floor(10 * d) / 10, 1),
        Rounding("next", lambda d: np.floor(d + 1), 0),
    )
}


def get_rounding(name: str) -> Rounding:
    """The rule called `name`."""
    if name not in ROUNDINGS:
        raise UnknownNameError("rounding", name, ROUNDINGS)
    return ROUNDINGS[name]


def euclidean(a: FloatArray, b: FloatArray) -> FloatArray:
    """Straight-line distance: points `[..., 2]` → `[...]`."""
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    return np.sqrt(dx * dx + dy * dy)


def manhattan(a: FloatArray, b: FloatArray) -> FloatArray:
    """Sum of the differences of coordinates."""
    return np.abs(a[..., 0] - b[..., 0]) + np.abs(a[..., 1] - b[..., 1])


def maximum(a: FloatArray, b: FloatArray) -> FloatArray:
    """Larger difference of coordinates."""
    return np.maximum(np.abs(a[..., 0] - b[..., 0]), np.abs(a[..., 1] - b[..., 1]))


def pseudo_euclidean(a: FloatArray, b: FloatArray) -> FloatArray:
    """The distance of the instances att48 and att532."""
    dx, dy = a[..., 0] - b[..., 0], a[..., 1] - b[..., 1]
    return np.sqrt((dx * dx + dy * dy) / 10.0)


def geographical(a: FloatArray, b: FloatArray) -> FloatArray:
    """Distance on the globe in km, of coordinates DDD.MM: latitude and longitude."""
    (lat_a, lon_a), (lat_b, lon_b) = _radians(a), _radians(b)
    q1, q2, q3 = np.cos(lon_a - lon_b), np.cos(lat_a - lat_b), np.cos(lat_a + lat_b)
    # Rounding errors may carry the cosine of nearby points above 1.
    cosine = np.clip(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3), -1.0, 1.0)
    return _EARTH_RADIUS * np.arccos(cosine)


def _radians(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    degrees = np.trunc(points)
    radians = _PI * (degrees + 5.0 * (points - degrees) / 3.0) / 180.0
    return radians[..., 0], radians[..., 1]


#: Mean radius of the earth in km.
_MEAN_RADIUS = 6371.0088


def haversine(a: FloatArray, b: FloatArray) -> FloatArray:
    """Great-circle distance in km of points `[..., 2]`, latitude and longitude in degrees."""
    (lat_a, lon_a), (lat_b, lon_b) = (np.moveaxis(np.radians(point), -1, 0) for point in (a, b))
    half_chord = (
        np.sin((lat_a - lat_b) / 2) ** 2
        + np.cos(lat_a) * np.cos(lat_b) * np.sin((lon_a - lon_b) / 2) ** 2
    )
    return 2 * _MEAN_RADIUS * np.arcsin(np.sqrt(np.clip(half_chord, 0.0, 1.0)))


def project(degrees: FloatArray) -> FloatArray:
    """Places on a map in km, x to the east, of latitudes and longitudes `[N, 2]`."""
    lat, lon = np.radians(degrees).T
    return _MEAN_RADIUS * np.stack([lon * np.cos(lat.mean()), lat], axis=1)  # [N, 2]


Distance = Callable[[FloatArray, FloatArray], FloatArray]

#: EDGE_WEIGHT_TYPE → distance and name of the rounding. ATT rounds to the nearest integer, and up
#: where that is below the distance, which is rounding up.
EDGE_WEIGHT_TYPES: Mapping[str, tuple[Distance, str]] = {
    "EUC_2D": (euclidean, "nearest"),
    "CEIL_2D": (euclidean, "up"),
    "FLOOR_2D": (euclidean, "down"),
    "EXACT_2D": (euclidean, "exact"),
    "MAN_2D": (manhattan, "nearest"),
    "MAX_2D": (maximum, "nearest"),
    "ATT": (pseudo_euclidean, "up"),
    "GEO": (geographical, "next"),
}


@dataclasses.dataclass(frozen=True, eq=False)
class EdgeCosts:
    """Costs between the N nodes of an instance.

    Nodes are mapped to M places of a file, so that their order may differ, and so that the depot
    can be left at one place and reached at another. Staying at a node costs nothing.

    Attributes:
        departure: Place from which each node is left, `[N]`.
        arrival: Place at which each node is reached, `[N]`.
        points: Coordinates of the places `[M, 2]`, or None if a matrix is given.
        distance: Distance of two points.
        rounding: How it is rounded.
        matrix: Costs between the places `[M, M]`, row to column, or None if points are given.
    """

    departure: IntArray
    arrival: IntArray
    points: FloatArray | None = None
    distance: Distance = euclidean
    rounding: Rounding = ROUNDINGS["exact"]
    matrix: FloatArray | None = None

    @classmethod
    def of_points(
        cls, points: FloatArray, distance: Distance = euclidean, rounding: str = "exact"
    ) -> EdgeCosts:
        """Costs from coordinates, one node per point."""
        nodes = np.arange(len(points))
        return cls(nodes, nodes, points, distance, get_rounding(rounding))

    @classmethod
    def of_matrix(cls, matrix: FloatArray) -> EdgeCosts:
        """Costs from a matrix, one node per row."""
        nodes = np.arange(len(matrix))
        return cls(nodes, nodes, matrix=matrix)

    def __call__(self, origin: IntArray, destination: IntArray) -> FloatArray:
        """Costs of the edges from `origin` to `destination`, which are broadcast."""
        start, end = self.departure[origin], self.arrival[destination]
        if self.matrix is not None:
            costs = self.matrix[start, end]
        else:
            assert self.points is not None
            costs = self.rounding.apply(self.distance(self.points[start], self.points[end]))
        return np.where(origin == destination, 0.0, costs)

    def all_pairs(self) -> FloatArray:
        """The matrix of all costs `[N, N]`, row to column.

        Raises:
            UnsupportedError: It is larger than the memory of this machine.
        """
        nodes = np.arange(len(self.departure))
        size = 8 * len(nodes) ** 2
        if exceeds_memory(size):
            raise UnsupportedError(
                f"expected costs of all pairs that fit into memory, got {len(nodes)} nodes, which "
                f"need {size / 2**30:.0f} GiB; solve a part of them, or use a method that computes "
                "with coordinates"
            )
        matrix = np.empty((len(nodes), len(nodes)))
        step = max(_BLOCK // max(len(nodes), 1), 1)  # rows at once, as a row needs some of its size
        for begin in range(0, len(nodes), step):
            rows = nodes[begin : begin + step]
            matrix[rows] = self(rows[:, None], nodes[None, :])
        return matrix

    def total(self, origin: IntArray, destination: IntArray) -> float:
        """Sum over edges, exact to the last digit that costs can have."""
        total = math.fsum(self(origin, destination))
        return total if self.decimals is None else round(total, self.decimals)

    @functools.cached_property
    def decimals(self) -> int | None:
        """Digits after the point that costs have; None: any number."""
        if self.matrix is None:
            return self.rounding.decimals
        return 0 if (self.matrix == np.floor(self.matrix)).all() else None

    @property
    def is_euclidean(self) -> bool:
        """Whether distances of the nodes' coordinates say all about costs, up to rounding."""
        joined = np.array_equal(self.departure, self.arrival)
        return self.matrix is None and self.distance is euclidean and joined

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge costs the same in both directions."""
        if not np.array_equal(self.departure, self.arrival):
            return False
        return self.matrix is None or np.array_equal(self.matrix, self.matrix.T)

    def take(self, departure: IntArray, arrival: IntArray | None = None) -> EdgeCosts:
        """Costs of other nodes on the same places.

        Args:
            departure: Place from which each node is left, `[N]`.
            arrival: Place at which each is reached; the same if None.
        """
        return dataclasses.replace(
            self, departure=departure, arrival=departure if arrival is None else arrival
        )

    def rounded(self, name: str) -> EdgeCosts:
        """The same distances, rounded by another rule."""
        if self.matrix is not None:
            raise UnsupportedError(
                "expected costs by coordinates to round them otherwise, got a matrix of costs; "
                "leave out the rounding"
            )
        return dataclasses.replace(self, rounding=get_rounding(name))
