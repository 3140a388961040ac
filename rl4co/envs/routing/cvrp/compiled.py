"""The rules of the CVRP in a compiled loop, for rollouts of the Attention Model on a CPU.

`ROLLOUT` names what is repeated here. If one of these functions is changed, this loop is not used
any more until it is changed as well and `fingerprint` is renewed (a test prints the new one).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from torch import Tensor

from rl4co.envs.hooks import State
from rl4co.kernels import compiled
from rl4co.kernels.decision import decide
from rl4co.kernels.mirror import Mirror
from rl4co.kernels.rollout import RolloutKernel
from rl4co.kernels.softmax import FORBIDDEN

_ONE, _ZERO = np.float32(1), np.float32(0)


@compiled(fast_sums=True)
def solve(
    rules: Any, weights: Any, scratch: Any, solutions: Any, per_instance: int, start: int, stop: int
) -> None:
    """Routes of rows `start`..`stop`."""
    demand, capacity, limit = rules  # [B, N], [B, 1], [B, 1]
    num_nodes, most = scratch.scores.size, solutions.actions.shape[1]
    barrier, query = scratch.barrier, scratch.query
    visited = np.empty(num_nodes, np.bool_)
    for row in range(start, stop):
        b = row // per_instance
        visited[:] = False
        used, last, left = _ZERO, 0, num_nodes
        solutions.steps[row] = -1
        for t in range(most):
            fits = False
            for n in range(1, num_nodes):
                free = not visited[n] and demand[b, n] + used <= limit[b, 0]
                barrier[n] = _ZERO if free else FORBIDDEN
                fits |= free
            barrier[0] = _ZERO if last != 0 or not fits else FORBIDDEN
            share = _ONE - used / capacity[b, 0]
            at = b * num_nodes + last
            for i in range(query.size):
                context = weights.table[at, i] + share * weights.feature_weight[0, i]
                query[i] = weights.graph[b, i] + context
            last = decide(weights, scratch, solutions, b, row, t)
            used = used + demand[b, last] if last > 0 else _ZERO
            left -= not visited[last]
            visited[last] = True
            if left == 0:
                solutions.steps[row] = t + 1
                break


def read_rules(env: Any, state: State) -> tuple[Tensor, ...]:
    """Demands `[B, N]`, capacity of the vehicle, and what may be loaded with the tolerance."""
    capacity = state["vehicle_capacity"]  # [B, 1]
    return state["demand"], capacity, capacity * (1.0 + env.capacity_tolerance)


ROLLOUT = RolloutKernel(
    loop=solve,
    rules=read_rules,
    mirror=Mirror(
        "cvrp",
        methods=(
            "advance", "step_bounds", "_transition", "_action_mask", "_forbidden", "_may_return",
            "_step_reward",
        ),
        fresh={"i": 0, "used_capacity": 0, "visited": 0, "current_node": 0, "done": 0},
        fingerprint="3e19432f5407301f",
        context="rl4co.models.embeddings.cvrp:CVRPContext",
    ),
)  # fmt: skip
