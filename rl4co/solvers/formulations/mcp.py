"""Maximum coverage as a mixed-integer program.

$$\\min -\\sum_t w_t z_t \\quad \\text{with} \\quad z_t \\le \\sum_{j: t \\in S_j} y_j, \\quad
  \\sum_j y_j = k, \\quad y_j \\in \\{0, 1\\}, \\quad z_t \\in [0, 1]$$
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._mip_problem import Floats, MixedIntegerProblem, Rows
from rl4co.solvers.formulations._mip import Arrays, MIPFormulation


@FORMULATIONS.register("mcp")
class MCPFormulation(MIPFormulation):
    """Sets and items."""

    def build(self, instance: Arrays, first: Sequence[int], attempt: int) -> MixedIntegerProblem:
        """The problem of an instance; sets come first among the variables, then items."""
        items = instance["orig_membership"].astype(np.int64)  # [N, K], from 1
        weights = instance["orig_weights"].astype(np.float64)  # [M]
        num_sets, wanted = len(items), _num_to_choose(instance)
        rows = Rows()
        covered = np.zeros(len(weights))
        for item in range(len(weights)):
            owners = np.flatnonzero((items == item + 1).any(axis=1))
            covered[item] = np.isin(first[:wanted], owners).any()
            columns = [np.array([column]) for column in (num_sets + item, *owners)]
            rows.add(columns, [1.0] + [-1.0] * len(owners), upper=0.0)
        rows.add([np.array([column]) for column in range(num_sets)], [1.0], wanted, wanted)
        chosen = np.zeros(num_sets)
        chosen[list(first[:wanted])] = 1.0
        return rows.problem(
            np.concatenate([np.zeros(num_sets), -weights]),
            np.arange(num_sets + len(weights)) < num_sets,
            np.concatenate([chosen, covered]),
        )

    def decode(self, instance: Arrays, values: Floats) -> list[int]:
        """The sets whose variable is one."""
        num_sets = len(instance["orig_membership"])
        chosen = np.argsort(-values[:num_sets], kind="stable")
        return chosen[: _num_to_choose(instance)].tolist()


def _num_to_choose(instance: Arrays) -> int:
    return int(instance["n_sets_to_choose"][0])
