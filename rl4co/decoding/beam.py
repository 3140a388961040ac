"""Beam search over the decode loop's states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torch import Tensor

from rl4co.decoding.rollout import DecodingTask, EndOfEpisode, Rollout, expand_solutions

if TYPE_CHECKING:
    from rl4co.decoding.strategies import BeamSearch


def beam_search(task: DecodingTask, strategy: BeamSearch) -> Rollout:
    """Keeps the most likely partial solutions of each instance.

    Args:
        task: What is decoded; its initial state has axes `[B, 1]`.
        strategy: Filters and the beam width W.

    Returns:
        A rollout with W solutions per instance, most likely first. An instance with fewer than W
        distinct solutions repeats its best one.
    """
    width = strategy.beam_width
    state = expand_solutions({key: value[:, 0] for key, value in task.state.items()}, width)
    done = state["done"]
    score = torch.full(done.shape[:2], -torch.inf, device=done.device)  # [B, W]
    score[:, 0] = 0.0  # all beams are equal at first, so only one of them counts
    actions = torch.empty(*done.shape[:2], 0, dtype=torch.int64, device=done.device)
    log_probs = torch.empty(*done.shape[:2], 0, device=done.device)

    step, end = 0, EndOfEpisode(task)
    while not end.is_reached(step, state):
        logits = strategy.filter(task.logits(state), state["action_mask"])
        step_log_probs = logits.log_softmax(-1)  # [B, W, N]
        num_actions = step_log_probs.shape[-1]
        total = score.unsqueeze(-1) + step_log_probs
        score, flat = total.flatten(1).topk(width, dim=-1)  # [B, W]
        # Candidates of probability zero are not solutions: repeat the best beam instead.
        impossible = score == -torch.inf
        flat = torch.where(impossible, flat[:, :1], flat)
        parent, action = flat // num_actions, flat % num_actions
        chosen = step_log_probs.flatten(1).gather(1, flat)
        actions = torch.cat([follow_parents(actions, parent), action.unsqueeze(-1)], -1)
        log_probs = torch.cat([follow_parents(log_probs, parent), chosen.unsqueeze(-1)], -1)
        state = {key: follow_parents(value, parent) for key, value in state.items()}
        state = task.advance(state, action)
        step += 1
    last = step - end.surplus
    return Rollout(actions=actions[..., :last], log_probs=log_probs[..., :last], state=state)


def follow_parents(value: Tensor, parent: Tensor) -> Tensor:
    """Rows of each beam's parent: `[B, W, ...], [B, W]` → `[B, W, ...]`."""
    index = parent.view(*parent.shape, *(1,) * (value.dim() - 2))
    return value.gather(1, index.expand(*parent.shape, *value.shape[2:]))
