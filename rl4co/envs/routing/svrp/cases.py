"""Facts about the SVRP, worked out by hand; the contract tests check them."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
ONCE = "every customer is visited exactly once"
SKILL = "every customer is within the skill of its technician"
TOO_MANY = "no more technicians set out than there are"

# The corners of a 3 x 4 rectangle with the depot in the origin: 0-1 and 2-3 are 3, 1-2 and 3-0 are
# 4, both diagonals 0-2 and 1-3 are 5. Customer j asks for skill j; technicians cost 1, 2, 3.
CORNERS: dict[str, Any] = {
    "depot": [0.0, 0.0],
    "locs": [[3.0, 0.0], [3.0, 4.0], [0.0, 4.0]],
    "techs": [[1.0], [2.0], [3.0]],
    "skills": [[1.0], [2.0], [3.0]],
}
RATES: dict[str, Any] = {**CORNERS, "tech_costs": [1.0, 0.0, 0.5]}
PAIR: dict[str, Any] = {**CORNERS, "techs": [[2.0], [5.0]]}
ALONE: dict[str, Any] = {**CORNERS, "techs": [[3.0]]}
# 0 → 1 → 2 → 0 costs 1 + 3 + 4, the other way round 2 + 20 + 10.
MATRIX: dict[str, Any] = {
    "cost_matrix": [[0.0, 1.0, 2.0], [10.0, 0.0, 3.0], [4.0, 20.0, 0.0]],
    "techs": [[1.0], [2.0]],
    "skills": [[0.0], [1.5]],
}
ONE: dict[str, Any] = {
    "depot": [1.0, 1.0], "locs": [[1.0, 3.5]], "techs": [[1.0], [4.0]], "skills": [[4.0]],
}  # fmt: skip

CASES = (
    Case("one customer each", CORNERS, [1, 0, 2, 0, 3], reward=-(6.0 * 1 + 10.0 * 2 + 8.0 * 3)),
    Case("the best does it all", CORNERS, [0, 0, 1, 2, 3], reward=-14.0 * 3),
    Case("the second stays at home", CORNERS, [1, 0, 0, 2, 3], reward=-(6.0 + 12.0 * 3)),
    Case("the second takes two", CORNERS, [0, 1, 2, 0, 3], reward=-(12.0 * 2 + 8.0 * 3)),
    Case("costs of the instance", RATES, [1, 0, 2, 0, 3], reward=-(6.0 + 0.0 + 4.0)),
    Case("two technicians", PAIR, [2, 1, 0, 3], reward=-(12.0 * 1 + 8.0 * 2)),
    Case("the first of two", {**PAIR, "skills": [[1.0], [2.0], [0.0]]}, [1, 2, 3, 0], reward=-14.0),
    Case("one technician", ALONE, [3, 2, 1, 0], reward=-14.0),
    Case("waiting at the depot is free", CORNERS, [0, 0, 1, 2, 3, 0, 0], reward=-14.0 * 3),
    Case("one customer", ONE, [0, 1], reward=-5.0 * 2),
    Case("one-way matrix", MATRIX, [0, 1, 2], reward=-8.0 * 2),
    Case("one-way matrix backwards", MATRIX, [0, 2, 1], reward=-32.0 * 2),
    Case("one-way matrix, two technicians", MATRIX, [1, 0, 2], reward=-(11.0 + 6.0 * 2)),
    # Solutions
    Case("customer twice", CORNERS, [1, 0, 2, 0, 3, 1], violates=ONCE),
    Case("customer missing", CORNERS, [1, 0, 2, 0], violates=ONCE),
    Case("only the depot", CORNERS, [0, 0, 0], violates=ONCE),
    Case("the first is not able to", CORNERS, [2, 0, 1, 0, 3], violates=SKILL),
    Case("the second is not able to", CORNERS, [0, 1, 2, 3, 0], violates=SKILL),
    Case("a third of two", PAIR, [1, 0, 2, 0, 3], violates=TOO_MANY),
    Case("a second of one", ALONE, [1, 2, 0, 3], violates=TOO_MANY),
    # Instances
    Case("skill not a number", {**ONE, "skills": [[NAN]]}, faults="skills is finite"),
    Case("negative technician", {**ONE, "techs": [[-1.0], [4.0]]}, faults="techs is not negative"),
    Case("no technician has a skill", {**ONE, "techs": [[0.0], [0.0]]}, faults="and not all 0"),
    Case("best first", {**ONE, "techs": [[4.0], [1.0]]}, faults="techs is ascending (sort it"),
    Case("negative skill", {**ONE, "skills": [[-1.0]]}, faults="skills is not negative"),
    Case("too hard for all", {**ONE, "skills": [[4.5]]}, faults="skills is within the best of"),
    Case("negative cost", {**ONE, "tech_costs": [1.0, -1.0]}, faults="tech_costs is not negative"),
    Case("all for nothing", {**ONE, "tech_costs": [0.0, 0.0]}, faults="tech_costs is not negative"),
    Case(
        "costs of another number", {**ONE, "tech_costs": [1.0]}, faults="key 'tech_costs' of shape"
    ),
    Case("skills without axis", {**ONE, "skills": [4.0]}, faults="key 'skills' of shape"),
    Case("skill of the depot", {**ONE, "skills": [[0.0], [4.0]]}, faults="key 'skills' of shape"),
)
