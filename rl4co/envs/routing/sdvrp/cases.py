"""Facts about the SDVRP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.routing.cvrp.cases import CORNERS, NAN, ONE, THIRTIETHS
from rl4co.envs.routing.cvrp.cases import ONE_WAY as MATRIX

ALL = "every demand is delivered"

# 6 + 6 + 4 of 8: two full vehicles, if the second customer is shared.
SHARED: dict[str, Any] = {**CORNERS, "capacity": [8.0], "demand": [0.75, 0.75, 0.5]}
# Demands in the original units; a vehicle carries 10 of them.
RAW: dict[str, Any] = {**CORNERS, "demand": [7.0, 6.0, 7.0], "vehicle_capacity": [10.0]}
# Depot and two customers; 0 → 1 → 2 → 0 costs 1 + 3 + 4, 0 → 2 → 0 costs 2 + 4.
ONE_WAY: dict[str, Any] = {**MATRIX, "demand": [0.5, 0.75]}

CASES = (
    # 6 and 2 of the shared 6, then the other 4 and 4.
    Case("shared", SHARED, [1, 2, 0, 2, 3], reward=-(3.0 + 4.0 + 5.0) - (5.0 + 3.0 + 4.0)),
    # 6 and 2 of the last 4, then 6 and the other 2.
    Case("sharing another one", SHARED, [2, 3, 0, 1, 3], reward=-12.0 - (3.0 + 5.0 + 4.0)),
    Case("one customer per route", SHARED, [1, 0, 2, 0, 3], reward=-2.0 * (3.0 + 5.0 + 4.0)),
    Case(
        "three vehicles where two would do",
        SHARED,
        [1, 2, 0, 2, 0, 3],
        reward=-12.0 - (5.0 + 5.0) - (4.0 + 4.0),
    ),
    Case("waiting at the depot is free", SHARED, [1, 2, 0, 2, 3, 0, 0], reward=-24.0),
    # 7 + 3, 3 + 7.
    Case("demands in original units", RAW, [1, 2, 0, 2, 3], reward=-24.0),
    Case("larger vehicle", {**RAW, "vehicle_capacity": [20.0]}, [1, 2, 3], reward=-14.0),
    Case("thirtieths fill the vehicle", THIRTIETHS, [1, 2, 3, 4, 5, 6], reward=-12.0),
    Case("thirtieths backwards", THIRTIETHS, [6, 5, 4, 3, 2, 1], reward=-12.0),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case("no demand, no visit", {**ONE, "demand": [0.0]}, [0], reward=0.0),
    Case("one-way matrix", ONE_WAY, [1, 2, 0, 2], reward=-(1.0 + 3.0 + 4.0) - (2.0 + 4.0)),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "depot": [0.0, 0.0], "locs": [[9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0, 2],
        reward=-14.0,
    ),
    # Solutions
    Case("a remainder is not delivered", SHARED, [1, 2, 0, 3], violates=ALL),
    Case("no capacity for the remainder", RAW, [1, 2, 3, 0, 3], violates=ALL),
    Case("customer missing", SHARED, [1, 0, 2], violates=ALL),
    Case("only the depot", SHARED, [0, 0], violates=ALL),
    Case("beyond the tolerance", {**ONE_WAY, "demand": [0.5, 0.5001]}, [1, 2, 0], violates=ALL),
    Case("customer beyond the last", SHARED, [1, 0, 2, 0, 4], violates="every action exists"),
    # Instances
    Case("demand not a number", {**ONE, "demand": [NAN]}, faults="demand is finite"),
    Case("negative demand", {**ONE, "demand": [-0.5]}, faults="demand is not negative"),
    Case("demand above one", {**ONE, "demand": [1.5]}, faults="divide demand by capacity"),
    Case(
        "demand above the vehicle",
        {**RAW, "demand": [4.0, 11.0, 1.0]},
        faults="demand fits the vehicle_capacity",
    ),
    Case("no capacity", {**ONE, "capacity": [0.0]}, faults="capacity is positive"),
    Case("demand of the depot", {**ONE, "demand": [0.0, 1.0]}, faults="key 'demand' of shape"),
)
