"""Nearest cells: decaps as close to the probing ports as they go."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import get_distance_matrix
from rl4co.decoding.rollout import rollout
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers.formulations import PlacementFormulation


@register_solver("nearest_cell", reads=PlacementFormulation)
def nearest_cell(env: RL4COEnvBase, td: TensorDictBase) -> Tensor:
    """Placements on the free cells next to the ports; several ports take turns."""
    distances = get_distance_matrix(td["locs"])  # [B, N, N]
    probe = td["probe"]
    if probe.dtype == torch.bool:  # several ports: the cells of the first, the second, ...
        order = probe.long().argsort(dim=-1, descending=True, stable=True)  # [B, N], ports first
        count = probe.sum(-1, keepdim=True)  # [B, 1]
    else:
        order, count = probe, torch.ones_like(probe)

    def nearest(state: TensorDictBase) -> TensorDictBase:
        port = order.gather(-1, state["i"] % count).unsqueeze(-1)  # [B, 1, 1]
        away = distances.gather(1, port.expand(-1, 1, distances.shape[-1])).squeeze(1)  # [B, N]
        away = away.masked_fill(~state["action_mask"], torch.inf)
        return state.set("action", away.argmin(-1))

    return rollout(env, td, nearest)[2]
