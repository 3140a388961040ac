"""Facts about the MTVRP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every customer is visited exactly once"
FULL = "no load exceeds the vehicle capacity"
ORDER = "linehauls come before backhauls (backhaul_class 1)"
LATE = "service begins and closed routes end within the time windows"
LONG = "no route is longer than the distance limit"
IN_TIME = "time_windows can be met from the depot"
IN_REACH = "distance_limit allows the way to each customer"


def plain(customers: int, **changes: Any) -> dict[str, Any]:
    """An instance without features, apart from the changes; the depot is the first node."""
    nodes = customers + 1
    return {
        "demand_linehaul": [0.0] * nodes,
        "demand_backhaul": [0.0] * nodes,
        "distance_limit": [INF],
        "time_windows": [[0.0, INF]] * nodes,
        "service_time": [0.0] * nodes,
        "vehicle_capacity": [1.0],
        "capacity_original": [10.0],
        "open_route": [False],
        "speed": [1.0],
        **changes,
    }


# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5.
CORNERS = [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]]
CVRP = plain(3, locs=CORNERS, demand_linehaul=[0.0, 0.5, 0.25, 0.25])
OVRP = {**CVRP, "open_route": [True]}
HALVES = {**CVRP, "demand_linehaul": [0.0, 0.5, 0.5, 0.5]}
# Customer 3 is a backhaul that fills the vehicle.
VRPB = {
    **CVRP, "demand_linehaul": [0.0, 0.5, 0.5, 0.0], "demand_backhaul": [0.0, 0.0, 0.0, 1.0],
}  # fmt: skip
# Customer 3 is a backhaul of 0.5, the others are linehauls of 0.25, in any order.
MIXED = {
    **CVRP,
    "demand_linehaul": [0.0, 0.25, 0.25, 0.0],
    "demand_backhaul": [0.0, 0.0, 0.0, 0.5],
    "backhaul_class": [2.0],
}
HEAVY = {**MIXED, "demand_backhaul": [0.0, 0.0, 0.0, 0.6]}
VRPL = {**CVRP, "distance_limit": [14.0]}
SHORT = {**CVRP, "distance_limit": [10.0]}
# Along 1, 2, 3: arrival 3, wait until 4, leave at 5; arrival 9, leave at 10; arrival 13, leave at
# 14; back at 18. The other way round customer 1 would be reached at 4 + 1 + 3 + 1 + 4 = 13.
VRPTW = {
    **CVRP,
    "time_windows": [[0.0, 18.0], [4.0, 5.0], [0.0, 9.0], [0.0, 13.0]],
    "service_time": [0.0, 1.0, 1.0, 1.0],
}
OVRPTW = {
    **VRPTW, "open_route": [True],
    "time_windows": [[0.0, 1.0], [4.0, 5.0], [0.0, 9.0], [0.0, 13.0]],
}  # fmt: skip
FAST = {**CVRP, "speed": [2.0], "time_windows": [[0.0, 7.0]] + [[0.0, INF]] * 3}
SAME_TIME = {
    **CVRP,
    "duration_matrix": [[float(a != b) for b in range(4)] for a in range(4)],
    "time_windows": [[0.0, 4.0]] + [[0.0, INF]] * 3,
}
EVERYTHING = {**OVRPTW, "distance_limit": [10.0], "demand_backhaul": [0.0, 0.0, 0.0, 1.0]}
# Customers on a line. 2 + 4 + 4 + 5 + 7 + 8 = 30, but the float32 fractions add up to more than 1.
THIRTIETHS = plain(
    6,
    locs=[[float(x), 0.0] for x in range(7)],
    demand_linehaul=[units / 30 for units in (0, 2, 4, 4, 5, 7, 8)],
)
# Depot and two customers; 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
ONE_WAY = plain(
    2,
    cost_matrix=[[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    demand_linehaul=[0.0, 0.2, 0.2],
)
ONE = plain(1, locs=[[1.0, 1.0], [1.0, 3.5]], demand_linehaul=[0.0, 1.0])


def one(**changes: Any) -> dict[str, Any]:
    """The instance with one customer at distance 2.5, changed."""
    return {**ONE, **changes}


CASES = (
    Case("one route", CVRP, [1, 2, 3, 0], reward=-14.0),
    Case("two routes", CVRP, [1, 2, 0, 3], reward=-(3.0 + 4.0 + 5.0) - 8.0),
    Case("waiting at the depot is free", CVRP, [1, 2, 3, 0, 0, 0], reward=-14.0),
    Case("thirtieths fill the vehicle", THIRTIETHS, [1, 2, 3, 4, 5, 6, 0], reward=-12.0),
    Case("other units", one(demand_linehaul=[0.0, 9.0], vehicle_capacity=[9.0]), [1, 0],
         reward=-5.0),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case("open route", OVRP, [1, 2, 3, 0], reward=-10.0),
    Case("two open routes", OVRP, [1, 2, 0, 3], reward=-7.0 - 4.0),
    Case("waiting after open routes", OVRP, [1, 2, 0, 3, 0, 0], reward=-7.0 - 4.0),
    Case("open route with one customer", one(open_route=[True]), [1, 0], reward=-2.5),
    Case("backhaul last", VRPB, [1, 2, 3, 0], reward=-14.0),
    Case("backhaul alone", VRPB, [3, 0, 1, 2], reward=-8.0 - 12.0),
    Case(
        "no demand behind a backhaul",
        {**VRPB, "demand_linehaul": [0.0, 0.5, 0.0, 0.0]},
        [1, 3, 2, 0],
        reward=-(3.0 + 5.0 + 3.0 + 5.0),
    ),
    Case("both demands", one(demand_backhaul=[0.0, 1.0]), [1, 0], reward=-5.0),
    Case("mixed: backhaul first", MIXED, [3, 1, 2, 0], reward=-(4.0 + 5.0 + 4.0 + 5.0)),
    Case("mixed: backhaul between", HEAVY, [1, 3, 2, 0], reward=-(3.0 + 5.0 + 3.0 + 5.0)),
    Case("limit reached", VRPL, [1, 2, 3, 0], reward=-14.0),
    Case("limit per route", SHORT, [2, 0, 1, 0, 3], reward=-10.0 - 6.0 - 8.0),
    Case("limit of an open route", {**SHORT, "open_route": [True]}, [1, 2, 3, 0], reward=-10.0),
    Case("limit below there and back", one(open_route=[True], distance_limit=[2.5]), [1, 0],
         reward=-2.5),
    Case("times to the minute", VRPTW, [1, 2, 3, 0], reward=-14.0),
    Case("time starts anew", VRPTW, [2, 0, 1, 3], reward=-10.0 - (3.0 + 5.0 + 4.0)),
    Case("open route after hours", OVRPTW, [1, 2, 3, 0], reward=-10.0),
    Case("speed", FAST, [1, 2, 3, 0], reward=-14.0),
    Case("times by a matrix", SAME_TIME, [1, 2, 3, 0], reward=-14.0),
    Case("everything at once", EVERYTHING, [1, 2, 3, 0], reward=-10.0),
    Case("one-way matrix", ONE_WAY, [1, 2, 0], reward=-8.0),
    Case("one-way matrix backwards", ONE_WAY, [2, 1, 0], reward=-32.0),
    Case("open one-way matrix", {**ONE_WAY, "open_route": [True]}, [1, 2, 0], reward=-4.0),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "locs": [[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0],
        reward=-8.0,
    ),
    # Solutions
    Case("customer twice", CVRP, [1, 2, 3, 0, 1], violates=ONCE),
    Case("customer missing", CVRP, [1, 2, 0], violates=ONCE),
    Case("customer beyond the last", CVRP, [1, 2, 3, 4], violates="every action exists"),
    Case("three halves", HALVES, [1, 2, 3, 0], violates=FULL),
    Case("second route too full", {**THIRTIETHS, "vehicle_capacity": [0.5]},
         [1, 0, 2, 3, 4, 5, 6], violates=FULL),
    Case("too many backhauls", {**VRPB, "demand_backhaul": [0.0, 0.0, 0.5, 1.0],
                                "demand_linehaul": [0.0, 0.5, 0.0, 0.0]}, [1, 2, 3, 0],
         violates=FULL),
    # 0.6 fetched and 0.5 yet to deliver, although neither exceeds the capacity on its own.
    Case("mixed: backhaul too early", HEAVY, [3, 1, 2, 0], violates=FULL),
    # Float32 does not tell these lengths from rounding errors unless the tolerance is small.
    Case("just beyond the limit", one(locs=[[0.0, 0.0], [1.5000147, 0.0]], distance_limit=[3.0]),
         faults=IN_REACH),
    Case("route just beyond the limit", {**VRPL, "distance_limit": [13.9999]}, [1, 2, 3, 0],
         violates=LONG),
    Case("beyond the tolerance", {**ONE_WAY, "demand_linehaul": [0.0, 0.5, 0.50003]}, [1, 2, 0],
         violates=FULL),
    Case("linehaul after backhaul", {**MIXED, "backhaul_class": [1.0]}, [3, 1, 2, 0],
         violates=ORDER),
    Case("linehaul after backhaul by default",
         {key: value for key, value in MIXED.items() if key != "backhaul_class"}, [1, 3, 2, 0],
         violates=ORDER),
    Case("route too long", {**VRPL, "distance_limit": [13.99]}, [1, 2, 3, 0], violates=LONG),
    Case("way back too long", SHORT, [1, 2, 0, 3], violates=LONG),
    Case("last way back too long", SHORT, [3, 0, 1, 2], violates=LONG),
    Case("open route too long", {**OVRP, "distance_limit": [9.99]}, [1, 2, 3, 0], violates=LONG),
    Case("customer too late", VRPTW, [3, 2, 1, 0], violates=LATE),
    Case("depot too late", {**VRPTW, "time_windows": [[0.0, 17.9], *VRPTW["time_windows"][1:]]},
         [1, 2, 3, 0], violates=LATE),
    Case("too slow", {**FAST, "speed": [1.9]}, [1, 2, 3, 0], violates=LATE),
    Case("customer of an open route too late", OVRPTW, [3, 2, 1, 0], violates=LATE),
    # Instances
    Case("no customer", plain(0, locs=[[0.0, 0.0]]), faults="a customer besides the depot"),
    Case("coordinate not a number", one(locs=[[0.0, 0.0], [NAN, 0.0]]), faults="locs is finite"),
    Case("limit not a number", one(distance_limit=[NAN]), faults="distance_limit is finite"),
    Case("endless demand", one(demand_linehaul=[0.0, INF]), faults="demand_linehaul is finite"),
    Case("negative linehaul", one(demand_linehaul=[0.0, -0.1]), faults="are not negative"),
    Case("negative backhaul", one(demand_backhaul=[0.0, -0.1]),
         faults="demand_linehaul and demand_backhaul are not negative"),
    Case("no capacity", one(vehicle_capacity=[0.0]), faults="capacity_original are positive"),
    Case("no original capacity", one(capacity_original=[0.0]),
         faults="vehicle_capacity and capacity_original are positive"),
    Case("linehaul too large", one(demand_linehaul=[0.0, 1.1]), faults="fit the vehicle_capacity"),
    Case("backhaul too large", one(demand_backhaul=[0.0, 1.1]),
         faults="demands fit the vehicle_capacity (give both in the same units)"),
    Case("third class", one(backhaul_class=[3.0]), faults="backhaul_class is 1 (linehauls first)"),
    Case("standing still", one(speed=[0.0]), faults="speed is positive"),
    Case("negative service", one(service_time=[0.0, -1.0]), faults="service_time is not negative"),
    Case("window closes before it opens", one(time_windows=[[0.0, INF], [5.0, 4.0]]),
         faults="do not close before"),
    Case("window in the past", one(time_windows=[[0.0, INF], [-1.0, 4.0]]),
         faults="time_windows open at 0 or later and do not close before"),
    Case("window that never opens", one(time_windows=[[0.0, INF], [INF, INF]]),
         faults="time_windows open at 0 or later"),
    Case("depot with demand", one(demand_linehaul=[0.1, 1.0]), faults="the depot (node 0) has no"),
    Case("depot opens late", one(time_windows=[[1.0, INF], [0.0, INF]]),
         faults="the depot (node 0) has no demand, no service_time and a time window from 0 on"),
    Case("window out of reach", one(time_windows=[[0.0, INF], [0.0, 2.4]]), faults=IN_TIME),
    Case("slow way to a window", one(time_windows=[[0.0, INF], [0.0, 2.6]], speed=[0.9]),
         faults=IN_TIME),
    Case("no time to return", one(time_windows=[[0.0, 4.9], [0.0, INF]]), faults=IN_TIME),
    Case("window too late to return", one(time_windows=[[0.0, 9.0], [7.0, 8.0]]), faults=IN_TIME),
    Case("service too long to return", one(time_windows=[[0.0, 9.0], [0.0, 8.0]],
                                           service_time=[0.0, 5.0]), faults=IN_TIME),
    Case("limit below there and back, closed", one(distance_limit=[4.9]), faults=IN_REACH),
    Case("limit below there", one(distance_limit=[2.4], open_route=[True]), faults=IN_REACH),
    Case("negative cost", one(cost_matrix=[[0.0, 1.0], [-1.0, 0.0]]),
         faults="cost_matrix is not negative"),
    Case("waiting is not free", one(duration_matrix=[[1.0, 1.0], [1.0, 0.0]]),
         faults="duration_matrix is not negative, and 0 from the depot to itself"),
    Case("demands without the depot", one(demand_linehaul=[1.0]),
         faults="key 'demand_linehaul' of shape"),
    Case("integer flag", one(open_route=[1]), faults="boolean dtype"),
    Case("no time windows", {k: v for k, v in ONE.items() if k != "time_windows"},
         faults="missing: ['time_windows']"),
)  # fmt: skip
