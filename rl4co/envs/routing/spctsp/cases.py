"""Facts about the stochastic PCTSP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.routing.pctsp.cases import CORNERS as CERTAIN
from rl4co.envs.routing.pctsp.cases import ENOUGH, HOME, NAN, ONCE
from rl4co.envs.routing.pctsp.cases import ONE_WAY as MATRIX

# What is expected has nothing to do with what is earned.
CORNERS: dict[str, Any] = {**CERTAIN, "deterministic_prize": [0.5, 0.5, 0.5]}
UNLUCKY: dict[str, Any] = {**CORNERS, "stochastic_prize": [0.125, 0.25, 0.5]}
ONE_WAY: dict[str, Any] = {
    **MATRIX,
    "deterministic_prize": [0.5, 0.5],
    "stochastic_prize": [0.5, 0.5],
}

CASES = (
    Case("one earns enough", CORNERS, [2, 0], reward=-(5.0 + 5.0) - (1.0 + 4.0)),
    Case("one that earns nothing before", CORNERS, [1, 2, 0], reward=-(3.0 + 4.0 + 5.0) - 4.0),
    Case("all do not earn enough", UNLUCKY, [1, 2, 3, 0], reward=-(3.0 + 4.0 + 3.0 + 4.0)),
    Case(
        "not even expected to be enough",
        {**UNLUCKY, "deterministic_prize": [0.25, 0.25, 0.25]},
        [3, 2, 1, 0],
        reward=-14.0,
    ),
    Case("less is required", {**UNLUCKY, "prize_required": 0.5}, [3, 0], reward=-8.0 - 3.0),
    Case("waiting at the depot is free", CORNERS, [2, 0, 0], reward=-15.0),
    Case("one-way matrix", ONE_WAY, [1, 2, 0], reward=-(1.0 + 3.0 + 4.0)),
    # Solutions
    Case("customer twice", CORNERS, [2, 2, 0], violates=ONCE),
    Case("second tour", CORNERS, [2, 0, 3, 0], violates=HOME),
    Case("expected prizes do not count", CORNERS, [1, 3, 0], violates=ENOUGH),
    Case("home before all are visited", UNLUCKY, [2, 3, 0], violates=ENOUGH),
    # Instances
    Case("penalty below zero", {**CORNERS, "penalty": [1.0, 1.0, -1.0]}, faults="penalty is not"),
    Case(
        "negative real prize",
        {**CORNERS, "stochastic_prize": [-0.5, 1.0, 1.0]},
        faults="prizes are not negative",
    ),
    Case(
        "real prize not a number",
        {**CORNERS, "stochastic_prize": [NAN, 1.0, 1.0]},
        faults="stochastic_prize is finite",
    ),
    Case(
        "negative requirement",
        {**CORNERS, "prize_required": -1.0},
        faults="prize_required is not negative",
    ),
    Case(
        "more than prizes can come to",
        {**CORNERS, "prize_required": 99.0},
        faults="prize_required (1 unless given) is at most twice",
    ),
    Case(
        "no real prizes",
        {k: v for k, v in CORNERS.items() if k != "stochastic_prize"},
        faults="missing: ['stochastic_prize']",
    ),
)
