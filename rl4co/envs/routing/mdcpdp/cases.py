"""Facts about the MDCPDP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
ONCE = "every pickup and delivery is visited exactly once"
FIRST = "every pickup precedes its delivery"
ENDS = "every route starts and ends at the same depot"
SAME = "every order stays on one route"
TWICE = "no vehicle leaves its depot twice"
LOAD = "no vehicle carries more orders than its capacity"
EVEN = "is even and not zero"

CLOSE = {"problem_mode": "close"}
MANHATTAN = {"dist_mode": "L1"}
# On a line: depot 0 at 0, depot 1 at 10, one order from 1 to 3 (nodes 2 and 4), another from 8 to 6
# (nodes 3 and 5).
LINE: dict[str, Any] = {
    "depot": [[0.0, 0.0], [10.0, 0.0]],
    "locs": [[1.0, 0.0], [8.0, 0.0], [3.0, 0.0], [6.0, 0.0]],
    "capacity": [1, 1],
    "lateness_weight": [0.25],
}
ROOMY: dict[str, Any] = {**LINE, "capacity": [2, 1]}
# The depot, a pickup 3 to the right and 4 up, a delivery as far again.
SLANT: dict[str, Any] = {
    "depot": [[0.0, 0.0]],
    "locs": [[3.0, 4.0], [6.0, 8.0]],
    "capacity": [1],
    "lateness_weight": [0.0],
}
# One depot and one order; 0 → 1 → 2 → 0 costs 1 + 3 + 4.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "capacity": [1],
    "lateness_weight": [0.0],
}
# Route of depot 0: 0 → 1 → 3, length 3, and 3 back. Of depot 1: 10 → 8 → 6, length 4, and 4 back.
TWO = [0, 2, 4, 0, 1, 3, 5]
# 0 → 1 → 3 → 8 → 6: deliveries at 3 and 10, and 6 back.
ALONE = [0, 2, 4, 3, 5]
# 0 → 1 → 8 → 3 → 6: deliveries at 13 and 16.
STACKED = [0, 2, 3, 4, 5]


def modes(reward_mode: str, problem_mode: str = "open") -> dict[str, str]:
    """Arguments of an environment."""
    return {"reward_mode": reward_mode, "problem_mode": problem_mode}


CASES = (
    Case("two vehicles", LINE, TWO, reward=-(0.75 * 7.0 + 0.25 * (3.0 + 4.0))),
    Case("other one first", LINE, [1, 3, 5, 1, 0, 2, 4], reward=-7.0),
    Case("closed", LINE, TWO, reward=-(0.75 * 14.0 + 0.25 * 7.0), env_params=CLOSE),
    Case("closed, then waiting", LINE, [*TWO, 1, 1], reward=-12.25, env_params=CLOSE),
    Case("waiting", LINE, [*TWO, 1, 1, 1], reward=-7.0),
    Case("one vehicle", LINE, ALONE, reward=-(0.75 * 10.0 + 0.25 * (3.0 + 10.0))),
    Case("one closed", LINE, ALONE, reward=-(0.75 * 16.0 + 0.25 * 13.0), env_params=CLOSE),
    Case("stacked", ROOMY, STACKED, reward=-(0.75 * 16.0 + 0.25 * (13.0 + 16.0))),
    Case(
        "squares",
        LINE,
        TWO,
        reward=-(0.75 * 7.0 + 0.25 * (9.0 + 16.0)),
        env_params=modes("lateness_square"),
    ),
    Case("sum", LINE, TWO, reward=-7.0, env_params=modes("minsum")),
    Case("closed sum", LINE, TWO, reward=-14.0, env_params=modes("minsum", "close")),
    Case("longest", LINE, TWO, reward=-4.0, env_params=modes("minmax")),
    Case("longest closed", LINE, TWO, reward=-8.0, env_params=modes("minmax", "close")),
    Case("longest alone", LINE, ALONE, reward=-10.0, env_params=modes("minmax")),
    Case("weight 1", {**LINE, "lateness_weight": [1.0]}, ALONE, reward=-13.0, env_params=CLOSE),
    Case("random start", LINE, TWO, reward=-7.0, env_params={"start_mode": "random"}),
    Case("Euclidean", SLANT, [0, 1, 2], reward=-(5.0 + 5.0)),
    Case("Manhattan", SLANT, [0, 1, 2], reward=-(7.0 + 7.0), env_params=MANHATTAN),
    Case("Manhattan closed", SLANT, [0, 1, 2], reward=-28.0, env_params={**CLOSE, **MANHATTAN}),
    Case("one-way matrix", ONE_WAY, [0, 1, 2], reward=-4.0),
    Case("one-way matrix closed", ONE_WAY, [0, 1, 2, 0], reward=-8.0, env_params=CLOSE),
    Case(
        "matrix before coordinates",
        {**SLANT, **ONE_WAY},
        [0, 1, 2],
        reward=-4.0,
        env_params=MANHATTAN,
    ),
    # Solutions
    Case("customer twice", LINE, [0, 2, 4, 3, 5, 5], violates=ONCE),
    Case("customer missing", LINE, [0, 2, 4, 3], violates=ONCE),
    Case("only depots", LINE, [0, 0, 1], violates=ONCE),
    Case("customer beyond the last", LINE, [0, 2, 4, 3, 6], violates="every action exists"),
    Case("delivery first", LINE, [0, 2, 4, 5, 3], violates=FIRST),
    Case("no depot leaves", LINE, [2, 4, 3, 5], violates=ENDS),
    Case("no depot leaves after the first", LINE, [0, 2, 4, 0, 3, 5], violates=ENDS),
    Case("ends at another depot", LINE, [0, 2, 4, 1, 1, 3, 5], violates=ENDS),
    Case("order on two routes", LINE, [0, 2, 0, 1, 4, 3, 5], violates=SAME),
    Case("vehicle twice", LINE, [0, 2, 4, 0, 0, 3, 5], violates=TWICE),
    Case("too many orders", LINE, STACKED, violates=LOAD),
    Case("too many for the other vehicle", ROOMY, [1, 2, 3, 4, 5], violates=LOAD),
    # Instances
    Case("odd number", {**LINE, "locs": [[0.0, 1.0]] * 3}, faults=EVEN),
    Case("odd matrix", {**ONE_WAY, "cost_matrix": [[0.0] * 4] * 4}, faults=EVEN),
    Case("depot alone", {**ONE_WAY, "cost_matrix": [[0.0]]}, faults=EVEN),
    Case("no capacity", {**LINE, "capacity": [1, 0]}, faults="capacity is at least 1"),
    Case("weight above 1", {**LINE, "lateness_weight": [1.5]}, faults="weight is between 0 and 1"),
    Case("negative weight", {**LINE, "lateness_weight": [-0.1]}, faults="is between 0 and 1"),
    Case("weight not a number", {**LINE, "lateness_weight": [NAN]}, faults="weight is finite"),
    Case("depot not a number", {**SLANT, "depot": [[NAN, 0.0]]}, faults="depot is finite"),
    Case("vehicle without depot", {**LINE, "capacity": [1, 1, 1]}, faults="'capacity' of shape"),
    Case("half an order", {**LINE, "capacity": [1.5, 1.0]}, faults="integer dtype"),
    Case(
        "matrix of another size",
        {**LINE, "cost_matrix": [[0.0] * 4] * 4},
        faults="cost_matrix has a row for every depot, pickup and delivery",
    ),
    Case("one depot without axis", {**SLANT, "depot": [0.0, 0.0]}, faults="key 'depot' of shape"),
)
