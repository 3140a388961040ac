"""Facts about the PDP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every pickup and delivery is visited exactly once"
FIRST = "every pickup precedes its delivery"
DEPOT = "the depot is visited at the start and the end only"
EVEN = "is even: pickups, then"
FORCED = {"force_start_at_depot": True}

# One order along two sides of a 3 x 4 rectangle with the depot in a corner: 0-1 is 3, 1-2 is 4, the
# diagonal 2-0 is 5.
ORDER: dict[str, Any] = {"depot": [0.0, 0.0], "locs": [[3.0, 0.0], [3.0, 4.0]]}
# Two orders on a line with the depot at 0: from 1 to 4 (nodes 1 and 3), from 2 to 3 (2 and 4).
LINE: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[1.0, 0.0], [2.0, 0.0], [4.0, 0.0], [3.0, 0.0]],
}
# The way back is free: arcs into the depot cost nothing, 0 → 1 → 2 costs 1 + 3.
ONE_WAY: dict[str, Any] = {"cost_matrix": [[7.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 20.0, 0.0]]}

CASES = (
    Case("one order", ORDER, [1, 2], reward=-(3.0 + 4.0 + 5.0)),
    Case("one order, starting with the depot", ORDER, [0, 1, 2], reward=-12.0, env_params=FORCED),
    # 0 → 1 → 2 → 3 → 4 → 0 in places
    Case("stacked, last in first out", LINE, [1, 2, 4, 3], reward=-(1.0 + 1.0 + 1.0 + 1.0 + 4.0)),
    # 0 → 1 → 2 → 4 → 3 → 0
    Case("stacked, first in first out", LINE, [1, 2, 3, 4], reward=-(1.0 + 1.0 + 2.0 + 1.0 + 3.0)),
    # 0 → 1 → 4 → 2 → 3 → 0
    Case("one after the other", LINE, [1, 3, 2, 4], reward=-(1.0 + 3.0 + 2.0 + 1.0 + 3.0)),
    # 0 → 2 → 3 → 1 → 4 → 0
    Case("the other order first", LINE, [2, 4, 1, 3], reward=-(2.0 + 1.0 + 2.0 + 3.0 + 4.0)),
    Case("the other first, from the depot", LINE, [0, 2, 4, 1, 3], reward=-12.0, env_params=FORCED),
    Case("one-way matrix", ONE_WAY, [1, 2], reward=-4.0),
    Case("one-way matrix from the depot", ONE_WAY, [0, 1, 2], reward=-4.0, env_params=FORCED),
    Case("matrix before coordinates", {**ORDER, **ONE_WAY}, [1, 2], reward=-4.0),
    # Solutions
    Case("node twice", LINE, [1, 2, 3, 3], violates=ONCE),
    Case("node missing", LINE, [1, 2, 3], violates=ONCE),
    Case("customer beyond the last", ORDER, [1, 3], violates="every action exists"),
    Case("delivery first", ORDER, [2, 1], violates=FIRST),
    Case("second order delivered first", LINE, [1, 4, 2, 3], violates=FIRST),
    Case("delivery first, from the depot", ORDER, [0, 2, 1], violates=FIRST, env_params=FORCED),
    Case("depot in the middle", LINE, [1, 3, 0, 2, 4], violates=DEPOT),
    Case("depot as a step", ORDER, [0, 1, 2], violates=DEPOT),
    Case("depot not first", ORDER, [1, 0, 2], violates=DEPOT, env_params=FORCED),
    Case("depot twice", ORDER, [0, 1, 2, 0], violates=DEPOT, env_params=FORCED),
    Case("no depot", ORDER, [1, 2], violates=DEPOT, env_params=FORCED),
    # Instances
    Case("odd number", {**ORDER, "locs": [[0.0, 1.0]] * 3}, faults=EVEN),
    Case("odd matrix", {"cost_matrix": [[0.0] * 4] * 4}, faults=EVEN),
    Case("coordinate not a number", {**ORDER, "locs": [[NAN, 0.0]] * 2}, faults="locs is finite"),
    Case("infinite depot", {**ORDER, "depot": [INF, 0.0]}, faults="depot is finite"),
    Case("infinite cost", {"cost_matrix": [[INF] * 3] * 3}, faults="cost_matrix is finite"),
    Case(
        "matrix without the depot",
        {**ORDER, "cost_matrix": [[0.0] * 2] * 2},
        faults="key 'cost_matrix' of shape",
    ),
    Case("no depot key", {"locs": ORDER["locs"]}, faults="missing: ['depot']"),
)
