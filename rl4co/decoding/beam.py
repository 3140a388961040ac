"""Beam search over the decode loop's states."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.decoding.rollout import (
    LogitsFn,
    MemoryFn,
    Rollout,
    advance,
    all_finished,
    expand_solutions,
    require_finished,
    step_range,
)
from rl4co.decoding.strategies import BeamSearch
from rl4co.envs.base import RL4COEnvBase, State


def beam_search(
    env: RL4COEnvBase,
    state: State,
    logits_fn: LogitsFn,
    strategy: BeamSearch,
    *,
    memorise: MemoryFn | None = None,
    num_steps: int | None = None,
    max_steps: int | None = None,
) -> Rollout:
    """Keeps the most likely partial solutions of each instance.

    Args:
        env: The environment.
        state: Initial state with axes `[B, 1]`.
        logits_fn: State → logits `[B, W, N]`.
        strategy: Filters and the beam width W.
        memorise: Called with the state after each action; what it returns is carried along.
        num_steps: Exact number of steps; skips all looks at `done`.
        max_steps: Stop with an error after this many steps (default: the environment's bound).

    Returns:
        A rollout with W solutions per instance, most likely first. An instance with fewer than W
        distinct solutions repeats its best one.
    """
    width = strategy.beam_width
    state = expand_solutions({key: value[:, 0] for key, value in state.items()}, width)
    done = state["done"]
    score = torch.full(done.shape[:2], -torch.inf, device=done.device)  # [B, W]
    score[:, 0] = 0.0  # all beams are equal at first: one of them speaks for all
    actions = torch.empty(*done.shape[:2], 0, dtype=torch.int64, device=done.device)
    log_probs = torch.empty(*done.shape[:2], 0, device=done.device)

    fewest, most = step_range(env, state, num_steps, max_steps)
    for step in range(most):
        if step >= fewest and fewest < most and all_finished(env, state):
            break
        logits = strategy.filter(logits_fn(state), state["action_mask"])
        step_log_probs = logits.log_softmax(-1)  # [B, W, N]
        num_actions = step_log_probs.shape[-1]
        total = score.unsqueeze(-1) + step_log_probs
        score, flat = total.flatten(1).topk(width, dim=-1)  # [B, W]
        # Candidates of probability zero are no solutions: repeat the best beam instead.
        impossible = score == -torch.inf
        flat = torch.where(impossible, flat[:, :1], flat)
        parent, action = flat // num_actions, flat % num_actions
        chosen = step_log_probs.flatten(1).gather(1, flat)
        actions = torch.cat([_follow(actions, parent), action.unsqueeze(-1)], -1)
        log_probs = torch.cat([_follow(log_probs, parent), chosen.unsqueeze(-1)], -1)
        state = {key: _follow(value, parent) for key, value in state.items()}
        state = advance(env, state, action, memorise)
    else:
        if num_steps is None:
            require_finished(env, state, most)
    return Rollout(actions=actions, log_probs=log_probs, entropy=None, state=state)


def _follow(value: Tensor, parent: Tensor) -> Tensor:
    """Rows of each beam's parent: `[B, W, ...], [B, W]` → `[B, W, ...]`."""
    index = parent.view(*parent.shape, *(1,) * (value.dim() - 2))
    return value.gather(1, index.expand(*parent.shape, *value.shape[2:]))
