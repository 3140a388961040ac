"""Facts about the PCTSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "no customer is visited twice"
HOME = "the tour ends with the return to the depot"
ENOUGH = "the tour collects prize_required or visits every customer"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5. The first two corners are worth the prize of 1.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "deterministic_prize": [0.5, 0.5, 0.25],
    "stochastic_prize": [0.0, 1.0, 0.5],
    "penalty": [1.0, 2.0, 4.0],
}
# Customers on a line; 0.45 + 0.35 + 0.2 is less than 1 in float32.
ROUNDED: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[float(x), 0.0] for x in range(1, 5)],
    "deterministic_prize": [0.45, 0.35, 0.2, 0.3],
    "stochastic_prize": [0.45, 0.35, 0.2, 0.3],
    "penalty": [1.0, 1.0, 1.0, 0.5],
}
# Depot and two customers; 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "deterministic_prize": [1.0, 0.5],
    "penalty": [7.0, 5.0],
}
ONE: dict[str, Any] = {
    "depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "deterministic_prize": [1.0], "penalty": [9.0],
}  # fmt: skip

CASES = (
    Case("two are enough", CORNERS, [1, 2, 0], reward=-(3.0 + 4.0 + 5.0) - 4.0),
    Case("all three", CORNERS, [1, 2, 3, 0], reward=-(3.0 + 4.0 + 3.0 + 4.0)),
    Case("waiting at the depot is free", CORNERS, [2, 1, 0, 0, 0], reward=-12.0 - 4.0),
    Case(
        "little is required",
        {**CORNERS, "prize_required": 0.25},
        [3, 0],
        reward=-(4.0 + 4.0) - (1.0 + 2.0),
    ),
    Case("nothing is required", {**CORNERS, "prize_required": 0.0}, [0], reward=-7.0),
    Case("everything is required", {**CORNERS, "prize_required": 1.25}, [3, 2, 1, 0], reward=-14.0),
    Case("prizes add up to one", ROUNDED, [1, 2, 3, 0], reward=-6.0 - 0.5),
    Case("one customer", ONE, [1, 0], reward=-5.0),
    Case("one-way matrix", ONE_WAY, [1, 2, 0], reward=-(1.0 + 3.0 + 4.0)),
    Case("one-way matrix, there and back", ONE_WAY, [1, 0], reward=-(1.0 + 10.0) - 5.0),
    Case(
        "matrix before coordinates",
        {**ONE_WAY, "depot": [0.0, 0.0], "locs": [[9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0],
        reward=-8.0,
    ),
    # Solutions
    Case("customer twice", CORNERS, [1, 2, 1, 0], violates=ONCE),
    Case("second tour", CORNERS, [1, 2, 0, 3, 0], violates=HOME),
    Case("customer beyond the last", CORNERS, [1, 2, 4, 0], violates="every action exists"),
    Case("too little prize", CORNERS, [2, 3, 0], violates=ENOUGH),
    Case("home at once", CORNERS, [0], violates=ENOUGH),
    Case(
        "too little for more than the default",
        {**CORNERS, "prize_required": 1.1},
        [1, 2, 0],
        violates=ENOUGH,
    ),
    Case(
        "beyond the tolerance",
        {**CORNERS, "deterministic_prize": [0.5, 0.4999, 0.25]},
        [1, 2, 0],
        violates=ENOUGH,
    ),
    # Instances
    Case("coordinate not a number", {**ONE, "locs": [[NAN, 0.0]]}, faults="locs is finite"),
    Case("penalty not a number", {**ONE, "penalty": [NAN]}, faults="penalty is finite"),
    Case("infinite prize", {**ONE, "deterministic_prize": [INF]}, faults="prize is finite"),
    Case("negative penalty", {**ONE, "penalty": [-1.0]}, faults="penalty is not negative"),
    Case(
        "negative prize",
        {**CORNERS, "deterministic_prize": [-0.5, 1.0, 1.0]},
        faults="prizes are not negative",
    ),
    Case(
        "negative requirement",
        {**ONE, "prize_required": -1.0},
        faults="prize_required is not negative",
    ),
    Case(
        "prizes that are not enough",
        {**CORNERS, "deterministic_prize": [0.25, 0.25, 0.25]},
        faults="deterministic_prize adds up to prize_required",
    ),
    Case(
        "more required than there is",
        {**CORNERS, "prize_required": 1.5},
        faults="deterministic_prize adds up to prize_required",
    ),
    Case("penalty of another size", {**CORNERS, "penalty": [1.0]}, faults="'penalty' of shape"),
    Case(
        "requirement with axis",
        {**ONE, "prize_required": [1.0]},
        faults="key 'prize_required' of shape",
    ),
    Case("integer penalty", {**ONE, "penalty": [1]}, faults="floating point dtype"),
    Case("no penalty", {k: v for k, v in ONE.items() if k != "penalty"}, faults="['penalty']"),
    Case(
        "no prizes",
        {k: v for k, v in ONE.items() if k != "deterministic_prize"},
        faults="missing: ['deterministic_prize', 'stochastic_prize']",
    ),
)
