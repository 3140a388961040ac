"""Nearest neighbour: always go to the closest node that the mask allows."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import gather_points, get_distance
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers.formulations import RoutingFormulation, formulation_of


@register_solver("nearest_neighbor", reads=RoutingFormulation)
def nearest_neighbor(env: RL4COEnvBase, td: TensorDictBase) -> Tensor:
    """Solutions of any routing problem; depots are visited only if no customer can be.

    Tours begin at node 0. All instances are solved at once, in milliseconds.
    """
    num_depots = formulation_of(env, RoutingFormulation).count_depots(dict(td.items()))
    matrix = td.get("cost_matrix", None)

    def distances_from(node: Tensor) -> Tensor:
        """Distances `[B, N]` of all nodes from one, `[B]`; never those of all pairs."""
        if matrix is None:
            here = gather_points(td["locs"], node.unsqueeze(-1))  # [B, 1, 2]
            return get_distance(td["locs"], here)
        row = node.view(-1, 1, 1).expand(-1, 1, matrix.shape[-1])  # [B, 1, N]
        return matrix.gather(1, row).squeeze(1)

    def nearest(state: TensorDictBase) -> TensorDictBase:
        away = distances_from(state["current_node"])  # [B, N]
        away = away.masked_fill(~state["action_mask"], torch.inf)
        if num_depots:
            depots, customers = away.split([num_depots, away.shape[-1] - num_depots], -1)
            some = (customers < torch.inf).any(-1, keepdim=True)  # [B, 1]
            away = torch.cat([depots.masked_fill(some, torch.inf), customers], -1)
        return state.set("action", away.argmin(-1))

    return rollout(env, td, nearest)[2]
