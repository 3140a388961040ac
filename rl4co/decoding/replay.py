"""Replay: log-probabilities of all steps of known solutions in a few large products.

With the actions known, the inputs of all T steps are known too: the masks and the few state keys
that a decoder reads, recorded during the rollout and stacked to a time axis. Instead of an
autograd graph of T small steps there is one of a handful of batched matrix products.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rl4co.core.ops import gather_nodes
from rl4co.decoding.likelihood import chosen_log_prob
from rl4co.decoding.rollout import SUPPORT, Rollout, step_entropy
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import State


def replay(
    logits_fn: Callable[[State], Tensor],
    rollout: Rollout,
    strategy: DecodingStrategy,
    *,
    chunk: int | None = None,
    with_entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities (and entropies) of a rollout's actions, differentiable.

    Args:
        logits_fn: State with axes `[B, Q]` → logits `[B, Q, N]`, for any number of queries Q.
        rollout: Actions and the trace of the state keys that `logits_fn` reads.
        strategy: Filters the logits as during the rollout.
        chunk: Steps per piece. Each piece is recomputed in the backward pass, so the peak memory
            of the decoder shrinks by about T / chunk for one more forward pass through it.
        with_entropy: Compute the entropy of each step too.

    Returns:
        Log-probabilities `[B, S, T]` and entropies `[B, S, T]` (or None). Forced steps are 0.
    """
    actions = rollout.actions[..., rollout.forced :]  # [B, S, T']
    num_starts, num_steps = actions.shape[1:]
    known = strategy.without_truncation() if SUPPORT in rollout.trace else strategy
    if num_steps == 0:  # every action was forced
        zeros = torch.zeros(rollout.actions.shape, device=actions.device)
        return zeros, zeros if with_entropy else None

    def piece(first: int, last: int) -> Tensor:
        state = {key: value[:, :, first:last].flatten(1, 2) for key, value in rollout.trace.items()}
        chosen = actions[..., first:last].flatten(1, 2)  # [B, Q]
        logits, mask = logits_fn(state), state.get(SUPPORT, state["action_mask"])  # [B, Q, N]
        if known.only_clips and not with_entropy:
            out = chosen_log_prob(logits, mask, chosen, known.tanh_clipping)  # [B, Q]
        else:
            log_probs = known.filter(logits, mask).log_softmax(-1)
            out = gather_nodes(log_probs, chosen)
            if with_entropy:
                out = torch.stack([out, step_entropy(log_probs)])  # [2, B, Q]
        return out.unflatten(-1, (num_starts, last - first))  # [(2,) B, S, T'']

    size = chunk or num_steps
    pieces = []
    for first in range(0, num_steps, size):
        last = min(first + size, num_steps)
        if chunk and torch.is_grad_enabled():
            pieces.append(checkpoint(piece, first, last, use_reentrant=False))
        else:
            pieces.append(piece(first, last))
    result = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)
    result = torch.nn.functional.pad(result, (rollout.forced, 0))
    return (result[0], result[1]) if with_entropy else (result, None)
