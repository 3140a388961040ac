"""Facts about the CVRP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every customer is visited exactly once"
FULL = "no route exceeds the vehicle capacity"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "capacity": [10.0],
}
HALVES: dict[str, Any] = {**CORNERS, "demand": [0.5, 0.5, 0.5]}
THIRDS: dict[str, Any] = {**CORNERS, "demand": [1 / 3, 1 / 3, 1 / 3]}
# Demands in the original units; a vehicle carries 10 of them.
RAW: dict[str, Any] = {**CORNERS, "demand": [4.0, 6.0, 10.0], "vehicle_capacity": [10.0]}
# Customers on a line. 2 + 4 + 4 + 5 + 7 + 8 = 30, but the float32 fractions add up to more than 1.
THIRTIETHS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[float(x), 0.0] for x in range(1, 7)],
    "demand": [units / 30 for units in (2, 4, 4, 5, 7, 8)],
    "capacity": [30.0],
}
# Depot and two customers; 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "demand": [0.2, 0.2],
    "capacity": [10.0],
}
ONE: dict[str, Any] = {
    "depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "demand": [1.0], "capacity": [9.0],
}  # fmt: skip

CASES = (
    Case("two routes", HALVES, [1, 2, 0, 3], reward=-(3.0 + 4.0 + 5.0) - (4.0 + 4.0)),
    Case("one customer per route", HALVES, [2, 0, 1, 0, 3], reward=-2.0 * (5.0 + 3.0 + 4.0)),
    Case("thirds fill the vehicle", THIRDS, [1, 2, 3, 0], reward=-(3.0 + 4.0 + 3.0 + 4.0)),
    Case("thirds in two routes", THIRDS, [3, 1, 0, 2], reward=-(4.0 + 5.0 + 3.0) - 10.0),
    Case("waiting at the depot is free", THIRDS, [1, 2, 3, 0, 0, 0], reward=-14.0),
    Case("thirtieths fill the vehicle", THIRTIETHS, [1, 2, 3, 4, 5, 6, 0], reward=-12.0),
    Case("thirtieths backwards", THIRTIETHS, [6, 5, 4, 3, 2, 1, 0], reward=-12.0),
    Case("demands in original units", RAW, [1, 2, 0, 3], reward=-20.0),
    Case("original units, other order", RAW, [3, 0, 2, 1], reward=-(4.0 + 4.0) - (5.0 + 4.0 + 3.0)),
    Case("larger vehicle", {**RAW, "vehicle_capacity": [20.0]}, [1, 2, 3, 0], reward=-14.0),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case("a visit without demand", {**ONE, "demand": [0.0]}, [1, 0], reward=-5.0),
    Case("one-way matrix", ONE_WAY, [1, 2, 0], reward=-(1.0 + 3.0 + 4.0)),
    Case("one-way matrix backwards", ONE_WAY, [2, 1, 0], reward=-(2.0 + 20.0 + 10.0)),
    Case("one-way matrix, two routes", ONE_WAY, [1, 0, 2], reward=-(1.0 + 10.0) - (2.0 + 4.0)),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "depot": [0.0, 0.0], "locs": [[9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0],
        reward=-8.0,
    ),
    # Solutions
    Case("customer twice", HALVES, [1, 2, 0, 3, 0, 1], violates=ONCE),
    Case("customer missing", HALVES, [1, 2, 0], violates=ONCE),
    Case("only the depot", HALVES, [0, 0], violates=ONCE),
    Case("customer beyond the last", HALVES, [1, 2, 0, 4], violates="every action exists"),
    Case("three halves on the first route", HALVES, [1, 2, 3, 0], violates=FULL),
    Case("last route too full", RAW, [1, 0, 2, 3], violates=FULL),
    Case(
        "beyond the tolerance",
        {**ONE_WAY, "demand": [0.5, 0.50003]},
        [1, 2, 0],
        violates=FULL,
    ),
    # Instances
    Case("coordinate not a number", {**ONE, "locs": [[NAN, 0.0]]}, faults="locs is finite"),
    Case("infinite depot", {**ONE, "depot": [INF, 0.0]}, faults="depot is finite"),
    Case("demand not a number", {**ONE, "demand": [NAN]}, faults="demand is finite"),
    Case("negative demand", {**ONE, "demand": [-0.5]}, faults="demand is not negative"),
    Case("demand above one", {**ONE, "demand": [1.5]}, faults="divide demand by capacity"),
    Case(
        "demand above the vehicle",
        {**RAW, "demand": [4.0, 11.0, 1.0]},
        faults="demand fits the vehicle_capacity",
    ),
    Case("no capacity", {**ONE, "capacity": [0.0]}, faults="capacity is positive"),
    Case("no vehicle", {**ONE, "vehicle_capacity": [0.0]}, faults="capacity is positive"),
    Case("demand of another size", {**HALVES, "demand": [0.5]}, faults="key 'demand' of shape"),
    Case("demand of the depot", {**ONE, "demand": [0.0, 1.0]}, faults="key 'demand' of shape"),
    Case("two capacities", {**ONE, "capacity": [9.0, 9.0]}, faults="key 'capacity' of shape"),
    Case(
        "matrix without the depot",
        {**HALVES, "cost_matrix": [[0.0] * 3] * 3},
        faults="key 'cost_matrix' of shape",
    ),
    Case("integer demand", {**ONE, "demand": [1]}, faults="floating point dtype"),
    Case("no depot", {k: v for k, v in ONE.items() if k != "depot"}, faults="missing: ['depot']"),
    Case("no demands", {k: v for k, v in ONE.items() if k != "demand"}, faults="missing: ['demand"),
)
