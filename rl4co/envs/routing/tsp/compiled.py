"""The rules of the TSP in a compiled loop, for rollouts of the Attention Model on a CPU.

`ROLLOUT` names what is repeated here. If one of these functions is changed, this loop is not used
any more until it is changed as well and `fingerprint` is renewed (a test prints the new one).
"""

from __future__ import annotations

from typing import Any

import torch

from torch import Tensor

from rl4co.envs.hooks import State
from rl4co.kernels import compiled
from rl4co.kernels.decision import decide
from rl4co.kernels.mirror import Mirror
from rl4co.kernels.rollout import RolloutKernel
from rl4co.kernels.softmax import FORBIDDEN


@compiled(fast_sums=True)
def solve(
    rules: Any, weights: Any, scratch: Any, solutions: Any, per_instance: int, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`."""
    num_nodes, blank = scratch.scores.size, weights.table.shape[0] - 2
    barrier, query = scratch.barrier, scratch.query
    for row in range(start, stop):
        b = row // per_instance
        barrier[:] = 0
        first, last = 0, 0
        for t in range(num_nodes):
            # Rows of the first and the last node; before the first step, of the placeholder.
            one = 2 * (b * num_nodes + first) if t > 0 else blank
            other = 2 * (b * num_nodes + last) + 1 if t > 0 else blank + 1
            for i in range(query.size):
                query[i] = weights.graph[b, i] + weights.table[one, i] + weights.table[other, i]
            last = decide(weights, scratch, solutions, b, row, t)
            first = first if t > 0 else last
            barrier[last] = FORBIDDEN
        solutions.steps[row] = num_nodes


def read_rules(env: Any, state: State) -> tuple[Tensor, ...]:
    """None but that no node is visited twice."""
    return (torch.empty(0),)


ROLLOUT = RolloutKernel(
    loop=solve,
    rules=read_rules,
    mirror=Mirror(
        "tsp",
        methods=("advance", "step_bounds", "_transition", "_action_mask", "_step_reward"),
        fresh={"i": 0, "action_mask": 1},
        fingerprint="2bdd7d2242da7048",
        context="rl4co.models.embeddings.tsp:TSPContext",
    ),
)
