"""Nearest neighbour: always go to the closest node that the mask allows."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import get_distance_matrix
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import HEURISTIC, register_solver


@register_solver("nearest_neighbor", problems=("tsp", "cvrp"), priority=HEURISTIC)
def nearest_neighbor(
    env: RL4COEnvBase, td: TensorDictBase, *, max_runtime: float, num_procs: int
) -> Tensor:
    """Solutions that begin at node 0; a vehicle returns to the depot when nobody fits any more.

    All instances are solved at once, in milliseconds.

    Args:
        env: Environment.
        td: State after reset, with coordinates or a cost matrix.
        max_runtime: Not needed here.
        num_procs: Not needed here.

    Returns:
        Actions `[B, T]`.
    """
    matrix = td.get("cost_matrix", None)
    distances = get_distance_matrix(td["locs"]) if matrix is None else matrix  # [B, N, N]
    # Problems with demands have a depot at index 0.
    has_depot = "demand" in td.keys()

    def nearest(state: TensorDictBase) -> TensorDictBase:
        node = state["current_node"].unsqueeze(-1).unsqueeze(-1)  # [B, 1, 1]
        away = distances.gather(1, node.expand(-1, 1, distances.shape[-1])).squeeze(1)  # [B, N]
        allowed = state["action_mask"]
        away = away.masked_fill(~allowed, torch.inf)
        if has_depot:
            customers = allowed[:, 1:].any(-1)  # [B]
            depot = torch.where(customers, torch.inf, away[:, 0])
            away = torch.cat([depot.unsqueeze(-1), away[:, 1:]], -1)
        return state.set("action", away.argmin(-1))

    return rollout(env, td, nearest)[2]
