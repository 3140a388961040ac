"""Facts about the SHPP, worked out by hand; the contract tests check them."""

from __future__ import annotations

import math

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every node is visited exactly once"
START = "the path begins at node 0"
END = "the path ends at the last node"

# Around the unit square; from 0 to 3 it is three sides, or one side and two diagonals.
SQUARE: dict[str, Any] = {"locs": [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]}
# Stops on a line at 0, 2, 1, 5, from left to right 0, 2, 1, 3.
LINE: dict[str, Any] = {"locs": [[0.0, 0.0], [2.0, 0.0], [1.0, 0.0], [5.0, 0.0]]}
# From 0 over 1 to 2 it costs 1 + 2; the arcs 0 → 2 and 2 → 0, 7 and 3, are not used.
ONE_WAY: dict[str, Any] = {"cost_matrix": [[0.0, 1.0, 7.0], [5.0, 0.0, 2.0], [3.0, 9.0, 0.0]]}

CASES = (
    Case("three sides of the square", SQUARE, [0, 1, 2, 3], reward=-3.0),
    Case("crossed square", SQUARE, [0, 2, 1, 3], reward=-1.0 - 2.0 * math.sqrt(2.0)),
    Case("straight on", LINE, [0, 2, 1, 3], reward=-5.0),
    Case("to and fro", LINE, [0, 1, 2, 3], reward=-(2.0 + 1.0 + 4.0)),
    Case("two ends", {"locs": [[0.0, 0.0], [3.0, 4.0]]}, [0, 1], reward=-5.0),
    Case("one node is both ends", {"locs": [[0.3, 0.7]]}, [0], reward=0.0),
    Case("one-way matrix", ONE_WAY, [0, 1, 2], reward=-(1.0 + 2.0)),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "locs": [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]]},
        [0, 1, 2],
        reward=-3.0,
    ),
    # Solutions
    Case("node twice", SQUARE, [0, 1, 1, 3], violates=ONCE),
    Case("node missing", SQUARE, [0, 1, 3], violates=ONCE),
    Case("no node at all", SQUARE, [], violates=ONCE),
    Case("back to the start", SQUARE, [0, 1, 2, 3, 0], violates=ONCE),
    Case("another start", SQUARE, [1, 0, 2, 3], violates=START),
    Case("reversed", SQUARE, [3, 2, 1, 0], violates=START),
    Case("another end", SQUARE, [0, 1, 3, 2], violates=END),
    Case("node beyond the last", SQUARE, [0, 1, 2, 4], violates="every action exists"),
    # Instances
    Case("coordinate not a number", {"locs": [[0.0, NAN], [1.0, 0.0]]}, faults="locs is finite"),
    Case("infinite arc", {"cost_matrix": [[0.0, INF], [1.0, 0.0]]}, faults="cost_matrix is finite"),
    Case("points in space", {"locs": [[0.0, 0.0, 0.0]]}, faults="key 'locs' of shape [*B, n, 2]"),
    Case("matrix of another size", {**SQUARE, **ONE_WAY}, faults="key 'cost_matrix' of shape"),
    Case("integer coordinates", {"locs": [[0, 0], [3, 4]]}, faults="floating point dtype"),
    Case("no nodes", {}, faults="missing: ['locs']"),
)
