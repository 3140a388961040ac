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

from rl4co.core.ops import gather_nodes, step_entropy
from rl4co.decoding.likelihood import chosen_log_prob
from rl4co.decoding.rollout import SUPPORT, Rollout
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
    chosen = rollout.actions[..., rollout.forced :]  # [B, S, T']
    num_starts, num_steps = chosen.shape[1:]
    if num_steps == 0:  # every action was forced
        zeros = torch.zeros(rollout.actions.shape, device=chosen.device)
        return zeros, zeros if with_entropy else None
    known = strategy.without_truncation() if SUPPORT in rollout.trace else strategy
    # All steps of all solutions are queries of their instance, Q = S * T'.
    trace = {key: value.flatten(1, 2) for key, value in rollout.trace.items()}  # [B, Q, ...]
    actions = chosen.flatten(1)  # [B, Q]
    live = _unfinished(trace.pop("done", None))
    if live is not None:
        trace = {key: _take(value, live) for key, value in trace.items()}
        actions = actions.gather(1, live)

    def piece(first: int, last: int) -> Tensor:
        state = {key: value[:, first:last] for key, value in trace.items()}
        logits, mask = logits_fn(state), state.get(SUPPORT, state["action_mask"])  # [B, Q', N]
        if known.only_clips and not with_entropy:
            return chosen_log_prob(logits, mask, actions[:, first:last], known.tanh_clipping)
        log_probs = known.filter(logits, mask).log_softmax(-1)
        out = gather_nodes(log_probs, actions[:, first:last])  # [B, Q']
        return torch.stack([out, step_entropy(log_probs)]) if with_entropy else out

    num_queries = actions.shape[1]
    size = chunk * num_starts if chunk else num_queries
    pieces = []
    for first in range(0, num_queries, size):
        last = min(first + size, num_queries)
        if chunk and torch.is_grad_enabled():
            pieces.append(checkpoint(piece, first, last, use_reentrant=False))
        else:
            pieces.append(piece(first, last))
    result = pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)  # [(2,) B, Q]
    if live is not None:
        everywhere = result.new_zeros(*result.shape[:-1], num_starts * num_steps)
        result = everywhere.scatter(-1, live.expand_as(result), result)
    result = result.unflatten(-1, (num_starts, num_steps))  # [(2,) B, S, T']
    result = torch.nn.functional.pad(result, (rollout.forced, 0))
    return (result[0], result[1]) if with_entropy else (result, None)


def _unfinished(done: Tensor | None) -> Tensor | None:
    """Queries `[B, Q']` that a finished solution does not ask; None if there are too few to skip.

    In the steps that a finished solution waits for its batch mates it has one action of probability
    one. Instances with fewer queries than others are filled up with such steps.
    """
    if done is None:
        return None
    done = done.flatten(1)  # [B, Q]
    most = int((~done).sum(1).max())
    if most > 0.9 * done.shape[1]:
        return None
    return done.byte().argsort(dim=1, stable=True)[:, :most]


def _take(values: Tensor, index: Tensor) -> Tensor:
    """Some of the queries: `[B, Q, ...], [B, Q']` → `[B, Q', ...]`."""
    rows = torch.arange(len(values), device=values.device).unsqueeze(-1)  # [B, 1]
    return values[rows, index]
