"""Facts about tours given by successors, worked out by hand; the contract tests check them."""

from __future__ import annotations

import math

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.routing.tsp.cases import INF, NAN, ONE_WAY, SQUARE, TRIANGLE

TOUR = "the successors form one closed tour"
# Two triangles far apart.
HEXAGON: dict[str, Any] = {
    "locs": [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [9.0, 9.0], [9.0, 8.0], [8.0, 9.0]]
}

CASES = (
    # Node 1 follows node 0, and so on: the four sides of the unit square, in both directions.
    Case("around the square", SQUARE, [1, 2, 3, 0], reward=-4.0),
    Case("around the square backwards", SQUARE, [3, 0, 1, 2], reward=-4.0),
    # 0 → 2 → 1 → 3 → 0: two sides and both diagonals.
    Case("crossed square", SQUARE, [2, 3, 1, 0], reward=-2.0 - 2.0 * math.sqrt(2.0)),
    Case("right triangle", TRIANGLE, [1, 2, 0], reward=-(3.0 + 4.0 + 5.0)),
    Case("matrix before coordinates", {**TRIANGLE, **ONE_WAY}, [1, 2, 0], reward=-6.0),
    Case("matrix backwards", {**TRIANGLE, **ONE_WAY}, [2, 0, 1], reward=-21.0),
    # Solutions
    Case("two sub-tours", HEXAGON, [1, 2, 0, 4, 5, 3], violates=TOUR),
    Case("there and back twice", SQUARE, [1, 0, 3, 2], violates=TOUR),
    Case("node is its successor", SQUARE, [0, 2, 3, 1], violates=TOUR),
    Case("node twice", SQUARE, [1, 2, 1, 0], violates=TOUR),
    Case("node beyond the last", SQUARE, [1, 2, 4, 0], violates=TOUR),
    Case("node before the first", SQUARE, [1, 2, -1, 0], violates=TOUR),
    # Instances
    Case("two nodes", {"locs": [[0.0, 0.0], [1.0, 0.0]]}, faults="there are at least 3 nodes"),
    Case("coordinate not a number", {"locs": [[0.0, NAN]] * 3}, faults="locs is finite"),
    Case("infinite coordinate", {"locs": [[0.0, INF]] * 3}, faults="locs is finite"),
    Case("no nodes", {}, faults="missing: ['locs']"),
    Case("matrix without places", ONE_WAY, faults="missing: ['locs']"),
)
