"""Facts about the DPP; the contract tests check them.

Rewards are those of a nodal analysis: the admittance matrix of all branches is put together, decaps
are added to its diagonal, and it is inverted at each of the 201 frequencies.
"""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case

NAN = float("nan")
TWICE = "no cell has two decaps"
KEEPOUT = "no decap is on a keep-out or probing port"
COUNT = "max_decaps decaps are placed"
LIMITS = "max_decaps is at least 1 and at most that of the environment"
AFTER = "nothing is placed after the last decap"


def board(rows: int, cols: int, probe: int, keepouts: tuple[int, ...] = ()) -> dict[str, Any]:
    """A board with one port."""
    cells, longer = range(rows * cols), max(rows, cols)
    return {
        "locs": [[cell // cols / longer, cell % cols / longer] for cell in cells],
        "probe": [probe],
        "action_mask": [cell != probe and cell not in keepouts for cell in cells],
    }


def settings(rows: int, cols: int, max_decaps: int) -> dict[str, Any]:
    """Arguments of an environment with a chip of that size."""
    params = {"grid_size": [rows, cols], "num_keepout_min": 0, "num_keepout_max": 0}
    return {"generator_params": params, "max_decaps": max_decaps}


ROW, SQUARE, PUBLISHED = board(1, 3, 0), board(2, 2, 0, (3,)), board(10, 10, 23, (11, 99))
ONE, TWO, SQUARE_ONE = settings(1, 3, 1), settings(1, 3, 2), settings(2, 2, 1)

CASES = (
    # The two scores that are known of the published chip are 5.815 and 6.684.
    Case("three decaps", PUBLISHED, [1, 5, 7], reward=5.840667, env_params={"max_decaps": 3}),
    Case("a fourth", PUBLISHED, [1, 5, 7, 21], reward=6.557222, env_params={"max_decaps": 4}),
    Case("any order", PUBLISHED, [21, 7, 1, 5], reward=6.557222, env_params={"max_decaps": 4}),
    Case("beside the port", ROW, [1], reward=107.219877, env_params=ONE),
    Case("far from the port", ROW, [2], reward=85.632286, env_params=ONE),
    Case("both", ROW, [2, 1], reward=107.621666, env_params=TWO),
    # Cells are higher than wide: the neighbour in the column below is nearer than that in the row.
    Case("along the row", SQUARE, [1], reward=83.844080, env_params=SQUARE_ONE),
    Case("along the column", SQUARE, [2], reward=90.647320, env_params=SQUARE_ONE),
    Case("fewer than others", {**ROW, "max_decaps": [1]}, [1], reward=107.219877, env_params=TWO),
    # Solutions
    Case("decap on the port", ROW, [0], violates=KEEPOUT, env_params=ONE),
    Case("decap on a keep-out", SQUARE, [3], violates=KEEPOUT, env_params=SQUARE_ONE),
    Case("two on a cell", ROW, [1, 1], violates=TWICE, env_params=TWO),
    Case("one missing", ROW, [1], violates=COUNT, env_params=TWO),
    Case("one too many", ROW, [1, 2], violates=AFTER, env_params=ONE),
    Case("no such cell", ROW, [3], violates="every action exists", env_params=ONE),
    # Instances
    Case("port on no cell", {**ROW, "probe": [3]}, faults="probe is one of the cells",
         env_params=ONE),
    Case("port below zero", {**ROW, "probe": [-1]}, faults="probe is one of the cells",
         env_params=ONE),
    Case("no room", board(1, 3, 0, (2,)), faults="there are free cells for max_decaps decaps",
         env_params=TWO),
    # The port is not free even if the mask says so.
    Case("room on the port only", {**ROW, "action_mask": [True, True, False]},
         faults="there are free cells for max_decaps decaps", env_params=TWO),
    Case("more than the environment's", {**ROW, "max_decaps": [2]}, faults=LIMITS, env_params=ONE),
    Case("no decap", {**ROW, "max_decaps": [0]}, faults=LIMITS, env_params=ONE),
    Case("another chip", board(2, 3, 0), faults="there are as many cells as the chip has",
         env_params=ONE),
    Case("not a number", {**ROW, "locs": [[NAN, 0.0], [0.0, 0.3], [0.0, 0.6]]},
         faults="locs is finite", env_params=ONE),
    Case("too few cells in the mask", {**ROW, "action_mask": [False, True]},
         faults="key 'action_mask' of shape [*B, n]", env_params=ONE),
    Case("no port", {key: ROW[key] for key in ("locs", "action_mask")}, faults="missing: ['probe']",
         env_params=ONE),
)  # fmt: skip
