"""Facts about tours of orders given by successors, by hand; the contract tests check them."""

from __future__ import annotations

from rl4co.envs.cases import Case
from rl4co.envs.routing.pdp.cases import EVEN, FIRST, INF, LINE, NAN, ONE_WAY, ORDER

TOUR = "the successors form one closed tour"

CASES = (
    Case("one order", ORDER, [1, 2, 0], reward=-(3.0 + 4.0 + 5.0)),
    # 0 → 1 → 2 → 4 → 3 → 0, on a line at 0, 1, 2, 3, 4
    Case("stacked, last in first out", LINE, [1, 2, 4, 0, 3], reward=-8.0),
    # 0 → 2 → 4 → 1 → 3 → 0: 2 + 1 + 2 + 3 + 4
    Case("the other order first", LINE, [2, 3, 4, 0, 1], reward=-12.0),
    # 0 → 1 → 2 → 0 with arcs 1, 3 and 0
    Case("matrix before coordinates", {**ORDER, **ONE_WAY}, [1, 2, 0], reward=-4.0),
    # Solutions
    Case("delivery first", ORDER, [2, 0, 1], violates=FIRST),
    # 0 → 1 → 4 → 2 → 3 → 0: node 4 takes delivery of what node 2 gives
    Case("second order delivered first", LINE, [1, 4, 3, 0, 2], violates=FIRST),
    Case("order without the depot", LINE, [2, 3, 4, 1, 0], violates=TOUR),
    Case("node twice", LINE, [1, 2, 3, 3, 0], violates=TOUR),
    Case("node beyond the last", ORDER, [1, 3, 0], violates=TOUR),
    # Instances
    Case("odd number", {**ORDER, "locs": [[0.0, 1.0]] * 3}, faults=EVEN),
    Case("coordinate not a number", {**ORDER, "locs": [[NAN, 0.0]] * 2}, faults="locs is finite"),
    Case("infinite depot", {**ORDER, "depot": [INF, 0.0]}, faults="depot is finite"),
    Case("no depot key", {"locs": ORDER["locs"]}, faults="missing: ['depot']"),
)
