"""Facts about the CVRPMVC, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

ONCE = "every customer is visited exactly once"
FULL = "no route exceeds the vehicle capacity"
EARLY = "no vehicle returns early while the others cannot carry the rest"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5. Three halves need two vehicles, so there are three.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "capacity": [10.0],
}
HALVES: dict[str, Any] = {**CORNERS, "demand": [0.5, 0.5, 0.5]}
TWO_VEHICLES: dict[str, Any] = {**HALVES, "max_vehicle": [2.0]}
# In float32 more than one; one vehicle carries them all the same, so there are two.
THIRDS: dict[str, Any] = {**CORNERS, "demand": [1 / 3, 1 / 3, 1 / 3]}
RAW: dict[str, Any] = {**CORNERS, "demand": [4.0, 6.0, 10.0], "vehicle_capacity": [10.0]}
# Two vehicles can carry 1.8, but not for three times 0.6.
SIX_TENTHS: dict[str, Any] = {**CORNERS, "demand": [0.6, 0.6, 0.6], "max_vehicle": [2.0]}
ONE: dict[str, Any] = {
    "depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "demand": [1.0], "capacity": [9.0],
}  # fmt: skip
MATRIX: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "demand": [0.2, 0.2],
    "capacity": [10.0],
}

CASES = (
    Case("two vehicles", HALVES, [1, 2, 0, 3], reward=-(3.0 + 4.0 + 5.0) - (4.0 + 4.0)),
    Case("three vehicles", HALVES, [1, 0, 2, 0, 3], reward=-2.0 * (3.0 + 5.0 + 4.0)),
    Case("the rest fits the second vehicle", TWO_VEHICLES, [1, 0, 2, 3], reward=-6.0 - 12.0),
    Case("one vehicle", THIRDS, [1, 2, 3, 0], reward=-14.0),
    Case("thirds in two vehicles", THIRDS, [1, 0, 2, 3], reward=-6.0 - 12.0),
    Case("nothing fits, so one more", SIX_TENTHS, [1, 0, 2, 0, 3], reward=-24.0),
    Case("original units", RAW, [1, 0, 2, 0, 3], reward=-24.0),
    Case("waiting at the depot is free", TWO_VEHICLES, [1, 2, 0, 3, 0, 0], reward=-20.0),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case("matrix", MATRIX, [1, 0, 2], reward=-(1.0 + 10.0) - (2.0 + 4.0)),
    # Solutions
    Case("customer twice", HALVES, [1, 2, 0, 3, 0, 1], violates=ONCE),
    Case("three halves", HALVES, [1, 2, 3, 0], violates=FULL),
    Case("three vehicles of two", TWO_VEHICLES, [1, 0, 2, 0, 3], violates=EARLY),
    Case("three vehicles for thirds", THIRDS, [1, 0, 2, 0, 3], violates=EARLY),
    Case("two vehicles of one", {**THIRDS, "max_vehicle": [1.0]}, [1, 2, 0, 3], violates=EARLY),
    # Instances
    Case("negative demand", {**ONE, "demand": [-0.5]}, faults="demand is not negative"),
    Case("no capacity", {**ONE, "capacity": [0.0]}, faults="capacity is positive"),
    Case("demand above one", {**ONE, "demand": [1.5]}, faults="demand fits the vehicle_capacity"),
    Case(
        "too few vehicles",
        {**HALVES, "max_vehicle": [1.0]},
        faults="max_vehicle vehicles carry the total demand",
    ),
    Case(
        "too few for original units",
        {**RAW, "max_vehicle": [1.0]},
        faults="max_vehicle vehicles carry the total demand",
    ),
    Case("two limits", {**ONE, "max_vehicle": [2.0, 2.0]}, faults="key 'max_vehicle' of shape"),
)
