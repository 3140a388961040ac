"""Facts about facility location, worked out by hand; the contract tests check them."""

from __future__ import annotations

import math

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
TWICE = "no location is chosen twice"
ENOUGH = "as many locations are chosen as asked for"
RANGE = "to_choose is at least 1 and at most the number of locations"

SQUARE = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
# A pair on the left, a triple on the right, the latter with its middle in between.
VILLAGES: dict[str, Any] = {
    "locs": [[0.0, 0.0], [0.0, 1.0], [8.0, 0.0], [9.0, 0.0], [11.0, 0.0]],
    "to_choose": 2,
}
# Serving is dear against the slope: row (facility) to column (customer).
SLOPE = [[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [9.0, 5.0, 0.0]]

CASES = (
    # The neighbours of the corner are 1 away, the opposite corner sqrt(2).
    Case("one corner", {"locs": SQUARE, "to_choose": 1}, [2], reward=-2.0 - math.sqrt(2.0)),
    Case("two corners", {"locs": SQUARE, "to_choose": 2}, [0, 2], reward=-2.0),
    Case("all corners", {"locs": SQUARE, "to_choose": 4}, [3, 1, 0, 2], reward=0.0),
    # 1 in the pair; 1 and 2 to the middle of the triple.
    Case("two villages", VILLAGES, [0, 3], reward=-4.0),
    Case("two villages in the other order", VILLAGES, [3, 0], reward=-4.0),
    # 2 and 3 from the right end of the triple.
    Case("end of the village", VILLAGES, [4, 1], reward=-6.0),
    Case("from the top", {"cost_matrix": SLOPE, "to_choose": 1}, [0], reward=-3.0),
    Case("from the bottom", {"cost_matrix": SLOPE, "to_choose": 1}, [2], reward=-14.0),
    Case("published matrix", {"orig_distances": SLOPE, "to_choose": 2}, [2, 1], reward=-5.0),
    Case(
        "matrix before coordinates",
        {
            "locs": SQUARE[:3],
            "cost_matrix": SLOPE,
            "orig_distances": [[0.0] * 3] * 3,
            "to_choose": 1,
        },
        [1],
        reward=-6.0,
    ),
    Case("one location", {"locs": [[0.3, 0.7]], "to_choose": 1}, [0], reward=0.0),
    # Solutions
    Case("location twice", {"locs": SQUARE, "to_choose": 2}, [1, 1], violates=TWICE),
    Case("too few", {"locs": SQUARE, "to_choose": 3}, [1, 2], violates=ENOUGH),
    Case("none", {"locs": SQUARE, "to_choose": 1}, [], violates=ENOUGH),
    Case("beyond the last", {"locs": SQUARE, "to_choose": 1}, [4], violates="every action exists"),
    # Instances
    Case("more than there are", {"locs": SQUARE, "to_choose": 5}, faults=RANGE),
    Case("nothing to choose", {"locs": SQUARE, "to_choose": 0}, faults=RANGE),
    Case("fractions to choose", {"locs": SQUARE, "to_choose": 1.5}, faults="integer dtype"),
    Case(
        "coordinate not a number", {"locs": [[0.0, NAN]], "to_choose": 1}, faults="locs is finite"
    ),
    Case(
        "distance not a number",
        {"cost_matrix": [[0.0, NAN], [1.0, 0.0]], "to_choose": 1},
        faults="cost_matrix is finite",
    ),
    Case(
        "infinite distance",
        {"orig_distances": [[0.0, INF], [1.0, 0.0]], "to_choose": 1},
        faults="orig_distances is finite",
    ),
    Case(
        "matrix of another size",
        {"locs": SQUARE, "cost_matrix": SLOPE, "to_choose": 1},
        faults="key 'cost_matrix' of shape",
    ),
    Case(
        "something is chosen already",
        {"locs": SQUARE, "to_choose": 1, "chosen": [False, True, False, False]},
        faults="nothing is chosen yet",
    ),
    Case("no locations", {"to_choose": 1}, faults="missing: ['locs']"),
    Case("no number", {"locs": SQUARE}, faults="missing: ['to_choose']"),
)
