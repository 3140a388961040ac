"""Rollouts of constructive and of improvement environments."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.decoding.rollout import rollout as construct
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.improvement import is_improvement


def rollout(
    env: RL4COEnvBase,
    td: TensorDictBase,
    policy: Callable[[TensorDictBase], TensorDictBase],
    max_steps: int | None = None,
) -> tuple[Tensor, TensorDictBase, Tensor]:
    """Runs any callable that writes `td["action"]`, for heuristics and random rollouts.

    Args:
        env: The environment.
        td: State after `env.reset`; not modified.
        policy: Maps a state to a state with an action (`env.rand_action` is a random one where
            solutions are improved). Moves are checked as by `env.step`.
        max_steps: Constructive: more steps raise an error (default: the environment's bound);
            improvement: the number of moves.

    Returns:
        Reward `[*B]` (of the best solution, where they are improved), final state, actions
        `[*B, T]` or `[*B, T, A]`.
    """
    if not is_improvement(env):
        return construct(env, td, policy, max_steps)
    if max_steps is None or max_steps < 1:
        raise ConfigError(
            f"expected max_steps of at least 1 for {env.name}, whose episodes do not end, got "
            f"{max_steps}"
        )
    td, moves = td.copy(), []
    for _ in range(max_steps):
        td = policy(td)
        if not isinstance(td, TensorDictBase):
            raise ConfigError(
                f"expected a policy that writes td['action'] and returns td, got a "
                f"{type(td).__name__}; improvement policies go to rl4co.tasks.improve, or write "
                "lambda td: td.set('action', policy(td, env, phase='test')['actions'])"
            )
        env.check_moves(td, td.get("action", None))
        moves.append(td["action"])
        td.update(env.advance(dict(td.items()), td["action"]))
    return env.get_reward(td, td["rec_best"]), td, torch.stack(moves, -2)
