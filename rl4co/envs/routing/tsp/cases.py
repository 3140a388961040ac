"""Facts about the TSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

import math

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every node is visited exactly once"

SQUARE: dict[str, Any] = {"locs": [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]}
# Sides 3 and 4, diagonal 5: larger than the unit square.
TRIANGLE: dict[str, Any] = {"locs": [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]}
# Against the arrows it is much longer: 7 + 9 + 5 instead of 1 + 2 + 3.
ONE_WAY: dict[str, Any] = {"cost_matrix": [[0.0, 1.0, 7.0], [5.0, 0.0, 2.0], [3.0, 9.0, 0.0]]}

CASES = (
    # The four sides of the unit square, from any start and in both directions.
    Case("around the square", SQUARE, [0, 1, 2, 3], reward=-4.0),
    Case("around the square backwards", SQUARE, [2, 1, 0, 3], reward=-4.0),
    # Two sides and both diagonals: 2 + 2 sqrt(2).
    Case("crossed square", SQUARE, [0, 2, 1, 3], reward=-2.0 - 2.0 * math.sqrt(2.0)),
    Case("right triangle", TRIANGLE, [2, 0, 1], reward=-(5.0 + 3.0 + 4.0)),
    Case("there and back", {"locs": [[0.0, 0.5], [2.0, 0.5]]}, [1, 0], reward=-4.0),
    Case("one node", {"locs": [[0.3, 0.7]]}, [0], reward=0.0),
    Case("one-way matrix", ONE_WAY, [0, 1, 2], reward=-(1.0 + 2.0 + 3.0)),
    Case("one-way matrix backwards", ONE_WAY, [0, 2, 1], reward=-(7.0 + 9.0 + 5.0)),
    Case("matrix before coordinates", {**TRIANGLE, **ONE_WAY}, [1, 2, 0], reward=-6.0),
    # Solutions
    Case("node twice", SQUARE, [0, 1, 1, 3], violates=ONCE),
    Case("node missing", SQUARE, [0, 1, 2], violates=ONCE),
    Case("back to the start", SQUARE, [0, 1, 2, 3, 0], violates=ONCE),
    Case("no node at all", SQUARE, [], violates=ONCE),
    Case("node beyond the last", SQUARE, [0, 1, 2, 4], violates="every action exists"),
    Case("node before the first", SQUARE, [0, 1, 2, -1], violates="every action exists"),
    # Instances
    Case("coordinate not a number", {"locs": [[0.0, NAN], [1.0, 0.0]]}, faults="locs is finite"),
    Case("infinite coordinate", {"locs": [[0.0, 0.0], [INF, 0.0]]}, faults="locs is finite"),
    Case("infinite arc", {"cost_matrix": [[0.0, INF], [1.0, 0.0]]}, faults="cost_matrix is finite"),
    Case("points in space", {"locs": [[0.0, 0.0, 0.0]]}, faults="key 'locs' of shape [*B, n, 2]"),
    Case("flat coordinates", {"locs": [0.0, 1.0]}, faults="key 'locs' of shape [*B, n, 2]"),
    Case("matrix not square", {"cost_matrix": [[0.0, 1.0]]}, faults="key 'cost_matrix' of shape"),
    Case("matrix of another size", {**SQUARE, **ONE_WAY}, faults="key 'cost_matrix' of shape"),
    Case("integer coordinates", {"locs": [[0, 0], [3, 4]]}, faults="floating point dtype"),
    Case("no nodes", {}, faults="missing: ['locs']"),
    Case("key of another problem", {"demand": [1.0]}, faults="missing: ['locs']"),
)
