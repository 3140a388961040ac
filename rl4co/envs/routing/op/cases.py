"""Facts about the OP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN, INF = float("nan"), float("inf")
ONCE = "no customer is visited twice"
HOME = "the tour ends with the return to the depot"
SHORT = "the tour is not longer than max_length"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5. Two corners make a tour of 12, all three one of 14.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "prize": [0.25, 0.5, 1.0],
    "max_length": 12.5,
}
# Depot and two customers; 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
ONE_WAY: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "prize": [0.5, 0.25],
    "max_length": 8.5,
}
# Customer 1 is close on the way there and far on the way back, except through customer 2.
DETOUR: dict[str, Any] = {**ONE_WAY, "max_length": 11.5}
ONE: dict[str, Any] = {"depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "prize": [0.5], "max_length": 6.0}

CASES = (
    Case("two of three", CORNERS, [2, 3, 0], reward=0.5 + 1.0),
    Case("other way round", CORNERS, [3, 2, 0], reward=1.0 + 0.5),
    Case("one of three", CORNERS, [1, 0], reward=0.25),
    Case("home at once", CORNERS, [0], reward=0.0),
    Case("waiting at the depot earns nothing", CORNERS, [3, 0, 0, 0], reward=1.0),
    Case("long enough for all", {**CORNERS, "max_length": 14.5}, [1, 2, 3, 0], reward=1.75),
    Case(
        "exactly as long as allowed, with a negative margin",
        {**CORNERS, "max_length": 12.0},
        [1, 2, 0],
        reward=0.75,
        env_params={"length_margin": -1e-5},
    ),
    Case("one customer", ONE, [1, 0], reward=0.5),
    Case("no prize", {**ONE, "prize": [0.0]}, [1, 0], reward=0.0),
    Case("one-way matrix, there and back", ONE_WAY, [2, 0], reward=0.25),
    Case("one-way matrix, all", DETOUR, [1, 2, 0], reward=0.75),
    Case(
        "matrix before coordinates",
        {**DETOUR, "depot": [0.0, 0.0], "locs": [[9.0, 0.0], [0.0, 9.0]]},
        [1, 2, 0],
        reward=0.75,
    ),
    # Solutions
    Case("customer twice", CORNERS, [1, 1, 0], violates=ONCE),
    Case("second tour", {**CORNERS, "max_length": 99.0}, [1, 0, 2, 0], violates=HOME),
    Case("customer beyond the last", CORNERS, [4, 0], violates="every action exists"),
    Case("too long", CORNERS, [1, 2, 3, 0], violates=SHORT),
    Case("too long on the way back", {**CORNERS, "max_length": 9.9}, [2, 0], violates=SHORT),
    Case("too long without the return", CORNERS, [1, 2, 3], violates=SHORT),
    Case("a little too long", {**CORNERS, "max_length": 11.999}, [1, 2, 0], violates=SHORT),
    Case("one-way matrix backwards", ONE_WAY, [2, 1, 0], violates=SHORT),
    Case("one-way matrix, back the way it came", ONE_WAY, [1, 0], violates=SHORT),
    # Instances
    Case("coordinate not a number", {**ONE, "locs": [[NAN, 0.0]]}, faults="locs is finite"),
    Case("prize not a number", {**ONE, "prize": [NAN]}, faults="prize is finite"),
    Case("infinite length", {**ONE, "max_length": INF}, faults="max_length is finite"),
    Case("negative prize", {**ONE, "prize": [-0.5]}, faults="prize is not negative"),
    Case("negative length", {**ONE, "max_length": -1.0}, faults="max_length is not negative"),
    Case("prize of another size", {**CORNERS, "prize": [0.5]}, faults="key 'prize' of shape"),
    Case("prize of the depot", {**ONE, "prize": [0.0, 1.0]}, faults="key 'prize' of shape"),
    Case("length with axis", {**ONE, "max_length": [6.0]}, faults="key 'max_length' of shape"),
    Case(
        "matrix without the depot",
        {**CORNERS, "cost_matrix": [[0.0] * 3] * 3},
        faults="key 'cost_matrix' of shape",
    ),
    Case("integer prize", {**ONE, "prize": [1]}, faults="floating point dtype"),
    Case("no depot", {k: v for k, v in ONE.items() if k != "depot"}, faults="missing: ['depot']"),
    Case(
        "no length",
        {k: v for k, v in ONE.items() if k != "max_length"},
        faults="missing: ['max_length']",
    ),
)
