"""Facts about the CVRPTW, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
ONCE = "every customer is visited exactly once"
FULL = "no route exceeds the vehicle capacity"
WINDOW = "every service begins within the time window"
CLOSED = "every vehicle returns before the depot closes"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "demand": [0.2, 0.2, 0.2],
    "capacity": [10.0],
    "durations": [0.0, 0.0, 0.0, 0.0],
    "time_windows": [[0.0, 100.0]] * 4,
}


def windows(
    *customers: tuple[float, float], depot: tuple[float, float] = (0.0, 100.0)
) -> dict[str, Any]:
    """The corners with other time windows."""
    return {**CORNERS, "time_windows": [list(window) for window in (depot, *customers)]}


# Clockwise 0 → 1 → 2 → 3 → 0, vehicles are there after 3, 7, 10 and 14.
JUST_IN_TIME = windows((0.0, 3.0), (0.0, 7.0), (0.0, 10.0), depot=(0.0, 14.0))
# The first customer is ready at 10, so they are there after 10, 14, 17 and 21.
WAITS = windows((10.0, 12.0), (0.0, 14.0), (0.0, 17.0), depot=(0.0, 21.0))
# A service of 2 at each: there after 3, 9, 14 and 20.
SERVICE = {
    **windows((0.0, 3.0), (0.0, 9.0), (0.0, 14.0), depot=(0.0, 20.0)),
    "durations": [0.0, 2.0, 2.0, 2.0],
}
# Both neighbours of the depot are in a hurry.
TWO_ROUTES = windows((0.0, 3.0), (0.0, 100.0), (0.0, 4.0))
OPENS_AT_FIVE = windows((0.0, 8.0), (0.0, 12.0), (0.0, 15.0), depot=(5.0, 19.0))
SHORT_DAY = windows(*[(0.0, 14.0)] * 3, depot=(0.0, 14.0))
SHORTER_DAY = windows(*[(0.0, 11.5)] * 3, depot=(0.0, 11.5))
# Depot and two customers. 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "demand": [0.2, 0.2],
    "capacity": [10.0],
    "durations": [0.0, 0.0, 0.0],
    "time_windows": [[0.0, 32.0], [0.0, 22.0], [0.0, 4.0]],
}
# Here they take 10 + 5 + 20 and 10 + 5 + 10.
SLOW: dict[str, Any] = {
    **ONE_WAY,
    "duration_matrix": [[0.0, 10.0, 10.0], [10.0, 0.0, 5.0], [20.0, 5.0, 0.0]],
    "time_windows": [[0.0, 35.0], [0.0, 15.0], [0.0, 15.0]],
}
# The same times with coordinates for the costs.
SLOW_ROADS: dict[str, Any] = {
    **{key: value for key, value in SLOW.items() if key != "cost_matrix"},
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0]],
}
BACKWARDS = [[0.0, 1.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 0.0]]
# A customer 2.5 away who is served for 1.
ONE: dict[str, Any] = {
    "depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "demand": [1.0], "capacity": [9.0],
    "durations": [0.0, 1.0], "time_windows": [[0.0, 6.0], [2.0, 2.5]],
}  # fmt: skip


def hours(begin: float, end: float, depot: tuple[float, float] = (0.0, 6.0)) -> dict[str, Any]:
    """One customer with another time window."""
    return {**ONE, "time_windows": [list(depot), [begin, end]]}


CASES = (
    Case("time to spare", CORNERS, [1, 2, 3, 0], reward=-14.0),
    Case("just in time", JUST_IN_TIME, [1, 2, 3, 0], reward=-14.0),
    Case("waiting is free", WAITS, [1, 2, 3, 0], reward=-14.0),
    Case("services take time", SERVICE, [1, 2, 3, 0], reward=-14.0),
    Case("a new route starts at once", TWO_ROUTES, [1, 2, 0, 3], reward=-(3 + 4 + 5) - (4.0 + 4)),
    Case("the other split", TWO_ROUTES, [1, 0, 3, 2], reward=-(3 + 3) - (4.0 + 3 + 5)),
    Case("the depot opens later", OPENS_AT_FIVE, [1, 2, 3, 0], reward=-14.0),
    Case("staying at the depot is free", WAITS, [1, 2, 3, 0, 0, 0], reward=-14.0),
    Case("back in time", SHORT_DAY, [1, 0, 3, 2], reward=-(3 + 3) - (4.0 + 3 + 5)),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case(
        "demands in original units",
        {**TWO_ROUTES, "demand": [4.0, 6.0, 10.0], "vehicle_capacity": [10.0]},
        [1, 2, 0, 3],
        reward=-20.0,
    ),
    Case("times by the cost matrix", ONE_WAY, [2, 1, 0], reward=-(2.0 + 20.0 + 10.0)),
    Case("times by the cost matrix, two routes", ONE_WAY, [1, 0, 2], reward=-(1.0 + 10) - (2 + 4)),
    Case("a separate matrix of times", SLOW, [1, 2, 0], reward=-(1.0 + 3.0 + 4.0)),
    Case("the same backwards", SLOW, [2, 1, 0], reward=-(2.0 + 20.0 + 10.0)),
    Case("times by a matrix, not distances", SLOW_ROADS, [1, 2, 0], reward=-(3.0 + 4.0 + 5.0)),
    # Solutions
    Case("customer twice", CORNERS, [1, 2, 3, 0, 1], violates=ONCE),
    Case("customer missing", CORNERS, [1, 2, 0], violates=ONCE),
    Case("too full", {**CORNERS, "demand": [0.5, 0.5, 0.5]}, [1, 2, 3, 0], violates=FULL),
    Case("too late for the last one", JUST_IN_TIME, [2, 1, 0, 3], violates=WINDOW),
    Case(
        "too late after waiting",
        {**WAITS, "durations": [0.0, 1.0, 0.0, 0.0]},
        [1, 2, 0, 3],
        violates=WINDOW,
    ),
    Case(
        "too late after a service",
        {**SERVICE, "durations": [0.0, 2.0, 3.0, 2.0]},
        [1, 2, 3, 0],
        violates=WINDOW,
    ),
    Case("too late on the second route", TWO_ROUTES, [1, 0, 2, 3], violates=WINDOW),
    Case(
        "beyond the tolerance",
        windows((0.0, 3.0), (0.0, 6.99), (0.0, 10.0)),
        [1, 2, 3, 0],
        violates=WINDOW,
    ),
    Case(
        "too slow for the window",
        {**SLOW, "time_windows": [[0.0, 35.0], [0.0, 15.0], [0.0, 14.0]]},
        [1, 2, 0],
        violates=WINDOW,
    ),
    Case("too late for the depot", SHORT_DAY, [2, 1, 3, 0], violates=CLOSED),
    Case("the last return counts, too", SHORTER_DAY, [1, 0, 3, 2], violates=CLOSED),
    # Instances
    Case("window not a number", hours(NAN, 2.5), faults="time_windows is finite"),
    Case("negative demand", {**ONE, "demand": [-0.5]}, faults="demand is not negative"),
    Case("no capacity", {**ONE, "capacity": [0.0]}, faults="capacity is positive"),
    Case("demand above one", {**ONE, "demand": [1.5]}, faults="demand fits the vehicle_capacity"),
    Case("negative service", {**ONE, "durations": [0.0, -1.0]}, faults="durations is not negative"),
    Case("service at the depot", {**ONE, "durations": [1.0, 0.0]}, faults="and 0 for the depot"),
    Case("negative time", hours(-1.0, 2.5), faults="time_windows is not negative"),
    Case("no day", hours(0.0, 2.5, depot=(0.0, 0.0)), faults="the depot's ends after 0"),
    Case("ends before it begins", hours(3.5, 2.5), faults="time_windows begins before it ends"),
    Case(
        "time runs backwards",
        {**SLOW, "duration_matrix": BACKWARDS},
        faults="no travel time is negative",
    ),
    Case(
        "ends before anyone can be there",
        hours(0.0, 2.4),
        faults="time_windows of every customer can be reached from the depot",
    ),
    Case("the depot opens too late", hours(0.0, 3.0, depot=(1.0, 9.0)), faults="can be reached"),
    Case("begins too late to be back", hours(3.0, 4.0), faults="leave time for the way back"),
    Case(
        "served too long to be back",
        {**ONE, "durations": [0.0, 1.5]},
        faults="time_windows and durations of every customer leave time",
    ),
    Case("no window for the depot", {**ONE, "time_windows": [[2.0, 2.5]]}, faults="of shape"),
    Case("integer windows", {**ONE, "time_windows": [[0, 6], [2, 3]]}, [1, 0], reward=-5.0),
    Case(
        "a matrix of times alone",
        {key: value for key, value in SLOW.items() if key != "cost_matrix"},
        faults="missing: ['depot', 'locs']",
    ),
)
