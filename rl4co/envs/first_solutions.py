"""First solutions of improvement environments: random, or greedy."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import get_distance_matrix
from rl4co.envs.base import RL4COEnvBase


def construct(
    env: RL4COEnvBase, td: TensorDictBase, greedy: bool, rng: torch.Generator | None
) -> Tensor:
    """Solutions `[*B, T]` of random or nearest allowed nodes, from node 0."""
    state = dict(td.items())
    costs = state.get("cost_matrix")
    distances = get_distance_matrix(state["locs"]) if costs is None else costs  # [*B, N, N]
    visits = []
    for _ in range(env.step_bounds(state)[1]):
        mask = state["action_mask"]  # [*B, N]
        if greedy:
            here = state["current_node"][..., None, None].expand(
                *mask.shape[:-1], 1, mask.shape[-1]
            )
            distance = distances.gather(-2, here).squeeze(-2)  # [*B, N]
            action = distance.masked_fill(~mask, torch.inf).argmin(-1)
        else:
            action = random_choice(mask, rng)
        visits.append(action)
        state = env.advance(state, action)
    return torch.stack(visits, -1)


def random_choice(mask: Tensor, rng: torch.Generator | None) -> Tensor:
    """One of the allowed indices at random: `[*B, N]` → `[*B]`."""
    source = mask.device if rng is None else rng.device
    score = torch.rand(mask.shape, generator=rng, device=source).to(mask.device)
    return score.masked_fill(~mask, -1.0).argmax(-1)
