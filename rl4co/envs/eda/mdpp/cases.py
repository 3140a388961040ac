"""Facts about the mDPP; the contract tests check them. Rewards: see the cases of the DPP."""

from __future__ import annotations

from typing import Any

from rl4co.envs.cases import Case
from rl4co.envs.eda.dpp.cases import AFTER, COUNT, KEEPOUT, LIMITS, TWICE, board, settings


def with_ports(rows: int, cols: int, *ports: int) -> dict[str, Any]:
    """A board with several ports."""
    cells = range(rows * cols)
    return {
        "locs": board(rows, cols, 0)["locs"],
        "probe": [cell in ports for cell in cells],
        "action_mask": [cell not in ports for cell in cells],
    }


def few_ports(max_decaps: int, **arguments: Any) -> dict[str, Any]:
    """Arguments of an environment on a chip of four cells."""
    arguments_of_dpp = settings(2, 2, max_decaps)
    params = {**arguments_of_dpp["generator_params"], "num_probes_min": 1, "num_probes_max": 2}
    return {**arguments_of_dpp, "generator_params": params, **arguments}


CORNERS, PUBLISHED = with_ports(2, 2, 0, 3), with_ports(10, 10, 0, 99, 45)
ONE, TWO = few_ports(1), few_ports(2)
THREE: dict[str, Any] = {"max_decaps": 3}
SCORES = (4.593913, 4.316323, 7.524944)

CASES = (
    # Cell 1 is beside port 0 (83.844080) and above port 3 (90.647320).
    Case("worst of two", CORNERS, [1], reward=83.844080, env_params=ONE),
    Case("mean of two", CORNERS, [1], reward=(83.844080 + 90.647320) / 2,
         env_params=few_ports(1, reward_type="meansum")),
    Case("paper's name of the worst", CORNERS, [2], reward=83.844080,
         env_params=few_ports(1, reward_type="maxmin")),
    Case("both in between", CORNERS, [1, 2], reward=95.201554, env_params=TWO),
    Case("one port", with_ports(2, 2, 3), [1], reward=90.647320, env_params=ONE),
    Case("worst of three", PUBLISHED, [23, 24, 44], reward=min(SCORES), env_params=THREE),
    Case("paper's name of the mean", PUBLISHED, [44, 24, 23], reward=sum(SCORES) / 3,
         env_params={**THREE, "reward_type": "maxsum"}),
    Case("fewer than others", {**CORNERS, "max_decaps": [1]}, [1], reward=83.844080,
         env_params=TWO),
    # Solutions
    Case("decap on a port", CORNERS, [3], violates=KEEPOUT, env_params=ONE),
    Case("two on a cell", CORNERS, [1, 1], violates=TWICE, env_params=TWO),
    Case("one missing", CORNERS, [1], violates=COUNT, env_params=TWO),
    Case("one too many", CORNERS, [1, 2], violates=AFTER, env_params=ONE),
    # Instances
    Case("no port", with_ports(2, 2), faults="there is a probing port", env_params=ONE),
    Case("too many ports", with_ports(2, 2, 0, 1, 2),
         faults="at most as many probing ports as max_probes", env_params=ONE),
    Case("no room", {**CORNERS, "action_mask": [True, True, False, False]},
         faults="there are free cells for max_decaps decaps", env_params=TWO),
    Case("more than the environment's", {**CORNERS, "max_decaps": [2]}, faults=LIMITS,
         env_params=ONE),
    Case("another chip", with_ports(2, 3, 0), faults="there are as many cells as the chip has",
         env_params=ONE),
)  # fmt: skip
