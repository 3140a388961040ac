"""What a multi-start solution begins with: actions that the policy does not answer for."""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.envs.base import RL4COEnvBase, State


def environment_starts(td: TensorDictBase, env: RL4COEnvBase, num_starts: int) -> Tensor:
    """The environment's own choice of starts `[S * B]`."""
    return env.select_start_nodes(td, num_starts)


def behind_prefix(first: Tensor, prefix: Tensor | None) -> Tensor:
    """Starts behind what all solutions begin with: `[B, S], [B, K]` → `[B, S, K + 1]`."""
    starts = first.unsqueeze(-1)
    if prefix is None:
        return starts
    return torch.cat([prefix.unsqueeze(1).expand(*first.shape, -1), starts], -1)


def forced_actions(env: RL4COEnvBase, state: State) -> int:
    """Number of forced actions at the beginning of a multi-start solution."""
    prefix = env.start_prefix(state)
    return 1 if prefix is None else 1 + prefix.shape[-1]
