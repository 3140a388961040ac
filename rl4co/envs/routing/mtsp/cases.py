"""Facts about the mTSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "every customer is visited exactly once"
AGENTS = "there are no more tours than agents"
SUM = {"cost_type": "sum"}

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5.
CORNERS: dict[str, Any] = {
    "locs": [[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "num_agents": 2,
}
THREE: dict[str, Any] = {**CORNERS, "num_agents": 3}
ALONE: dict[str, Any] = {**CORNERS, "num_agents": 1}
ONE: dict[str, Any] = {"locs": [[1.0, 1.0], [1.0, 3.5]], "num_agents": 4}
# 0 → 1 → 0 costs 1 + 10, 0 → 2 → 0 costs 2 + 4, 0 → 1 → 2 → 0 costs 1 + 3 + 4. Turning back half
# way, at node 1, would cost more than the whole tour; the diagonal is not travelled.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[50.0, 1.0, 2.0], [10.0, 50.0, 3.0], [4.0, 20.0, 50.0]],
    "num_agents": 2,
}

CASES = (
    # Tours 0-1-2-0 of 3 + 4 + 5 and 0-3-0 of 4 + 4.
    Case("longest of two tours", CORNERS, [1, 2, 0, 3], reward=-12.0),
    Case("longest tour last", CORNERS, [3, 0, 1, 2], reward=-12.0),
    Case("both tours together", CORNERS, [1, 2, 0, 3], reward=-20.0, env_params=SUM),
    Case("waiting at the depot is free", CORNERS, [1, 2, 0, 3, 0, 0], reward=-12.0),
    Case("waiting is free in sum", CORNERS, [1, 2, 0, 3, 0, 0], reward=-20.0, env_params=SUM),
    Case("one agent stays at home", CORNERS, [1, 2, 3], reward=-14.0),
    Case("one agent makes the whole tour", ALONE, [1, 2, 3, 0], reward=-14.0),
    Case("one agent, sum", ALONE, [2, 1, 3], reward=-(5.0 + 4.0 + 5.0 + 4.0), env_params=SUM),
    Case("a tour each", THREE, [1, 0, 2, 0, 3], reward=-10.0),
    Case("a tour each, sum", THREE, [1, 0, 2, 0, 3], reward=-(6.0 + 10.0 + 8.0), env_params=SUM),
    Case("one customer", ONE, [1], reward=-5.0),
    Case("one-way matrix", ONE_WAY, [1, 2], reward=-8.0),
    Case("one-way matrix, two tours", ONE_WAY, [1, 0, 2], reward=-11.0),
    Case("one-way matrix, sum", ONE_WAY, [2, 0, 1, 0], reward=-17.0, env_params=SUM),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "locs": [[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0, 0],
        reward=-8.0,
    ),
    # Solutions
    Case("customer twice", CORNERS, [1, 2, 0, 3, 1], violates=ONCE),
    Case("customer missing", CORNERS, [1, 2, 0], violates=ONCE),
    Case("only the depot", CORNERS, [0, 0], violates=ONCE),
    Case("no tours", CORNERS, [], violates=ONCE),
    Case("customer beyond the last", CORNERS, [1, 2, 0, 4], violates="every action exists"),
    Case("three tours for two agents", CORNERS, [1, 0, 2, 0, 3], violates=AGENTS),
    Case("two tours for one agent", ALONE, [1, 2, 0, 3], violates=AGENTS),
    Case("too many tours with padding", CORNERS, [1, 0, 2, 0, 3, 0, 0], violates=AGENTS),
    # Instances
    Case("zero agents", {**CORNERS, "num_agents": 0}, faults="num_agents is at least 1"),
    Case("only a depot", {"locs": [[0.0, 0.0]], "num_agents": 1}, faults="has a customer"),
    Case("coordinate not a number", {**ONE, "locs": [[0.0, NAN], [0.0, 0.0]]}, faults="is finite"),
    Case("infinite coordinate", {**ONE, "locs": [[0.0, 0.0], [INF, 0.0]]}, faults="locs is finite"),
    Case("half an agent", {**CORNERS, "num_agents": 1.5}, faults="integer dtype"),
    Case("agents with an axis", {**CORNERS, "num_agents": [2]}, faults="key 'num_agents' of shape"),
    Case("points in space", {**ONE, "locs": [[0.0] * 3] * 2}, faults="key 'locs' of shape"),
    Case(
        "matrix of another size",
        {**CORNERS, "cost_matrix": [[0.0, 1.0], [1.0, 0.0]]},
        faults="key 'cost_matrix' of shape",
    ),
    Case("no places", {"num_agents": 2}, faults="missing: ['locs']"),
    Case("no agents", {"locs": CORNERS["locs"]}, faults="missing: ['num_agents']"),
)
