"""First actions of multi-start solutions, which are forced rather than chosen by the policy."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.ops import unbatchify
from rl4co.decoding.strategies import DecodingStrategy, Evaluate
from rl4co.envs.base import RL4COEnvBase

#: (state, environment, number of starts S) → first actions `[S * B]`.
StartsFn = Callable[[TensorDictBase, RL4COEnvBase, int], Tensor]


def forced_starts(
    strategy: DecodingStrategy,
    env: RL4COEnvBase,
    td: TensorDictBase,
    select_start_nodes_fn: StartsFn | None = None,
) -> Tensor | None:
    """Forced first actions `[B, S, K]` of a strategy; None if the policy chooses all actions.

    Args:
        strategy: Says whether there are starts, and how many.
        env: The environment.
        td: State right after reset, batch `[B]`.
        select_start_nodes_fn: Replaces the environment's choice of starts.
    """
    if not strategy.multistart:
        return None
    prefix = env.start_prefix(dict(td.items()))  # [B, K - 1], before the start itself
    if isinstance(strategy, Evaluate):
        forced = 1 if prefix is None else 1 + prefix.shape[-1]
        return strategy.known_actions[..., :forced]
    num_starts = strategy.num_starts or env.get_num_starts(td)
    if select_start_nodes_fn is None:
        first = env.select_start_nodes(td, num_starts)
    else:
        first = select_start_nodes_fn(td, env, num_starts)
    starts = unbatchify(first, num_starts).unsqueeze(-1)  # [B, S, 1]
    if prefix is None:
        return starts
    prefix = prefix.unsqueeze(1).expand(-1, num_starts, -1)  # [B, S, K - 1]
    return torch.cat([prefix, starts], -1)
