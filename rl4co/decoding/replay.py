"""Replay: log-probabilities of all steps of known solutions in a few large products.

With the actions known, the inputs of all T steps are known too: the masks and the few state keys
that a decoder reads, recorded during the rollout and stacked to a time axis. Instead of an
autograd graph of T small steps there is one of a handful of batched matrix products.

Many solutions of many steps have more logits than a cache, or the memory, holds. Then the batch is
replayed in pieces, a few instances at a time, each of which is recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rl4co.core.ops import gather_nodes, step_entropy
from rl4co.decoding.rollout import SUPPORT, Rollout
from rl4co.decoding.strategies import DecodingStrategy
from rl4co.envs.base import State

#: (state with axes `[B, Q]`, actions `[B, Q]`, strategy, whether entropies are wanted) →
#: log-probabilities `[B, Q]` and entropies `[B, Q]` (or None), for any number of queries Q.
LogProbFn = Callable[[State, Tensor, DecodingStrategy, bool], tuple[Tensor, Tensor | None]]

#: Logits of a piece, by the kind of device: on a CPU what the cache holds with its gradients,
#: elsewhere what memory holds easily.
PIECE = {"cpu": 2**20}
PIECE_ELSEWHERE = 2**27
#: Up to this many times a piece, everything is computed at once and kept for the backward pass.
MAX_UNSPLIT = 8
#: Queries of a piece if their logits are not stored: a few arrays of half a gigabyte.
FUSED_QUERIES = 2**20


def evaluate_logits(
    logits: Tensor, state: State, actions: Tensor, strategy: DecodingStrategy, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities and entropies `[B, Q]` (or None) of actions, from logits `[B, Q, N]`."""
    filtered = strategy.filter(logits, state.get(SUPPORT, state["action_mask"]))
    log_probs = filtered.log_softmax(-1)  # [B, Q, N]
    entropy = step_entropy(log_probs) if with_entropy else None
    return gather_nodes(log_probs, actions), entropy


def replay(
    log_prob_fn: LogProbFn,
    rollout: Rollout,
    strategy: DecodingStrategy,
    *,
    by_instance: Callable[[slice], LogProbFn] | None = None,
    chunk: int | None = None,
    with_entropy: bool = False,
    fused: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities (and entropies) of a rollout's actions, differentiable.

    Args:
        log_prob_fn: Log-probabilities of all queries.
        rollout: Actions, and the trace of the state keys that the policy reads.
        strategy: Filters the logits as during the rollout.
        by_instance: Instances → the same function for these alone; None: it works for all
            instances or none, and pieces are pieces of steps.
        chunk: Steps per piece; None: pieces are chosen by size.
        with_entropy: Compute the entropy of each step too.
        fused: Whether `log_prob_fn` stores no logits, so that larger pieces fit.

    Returns:
        Log-probabilities `[B, S, T]` and entropies `[B, S, T]` (or None). Forced steps are 0.
    """
    actions = rollout.actions[..., rollout.forced :]  # [B, S, T']
    batch, num_starts, num_steps = actions.shape
    if num_steps == 0:  # every action was forced
        zeros = torch.zeros(rollout.actions.shape, device=actions.device)
        return zeros, zeros if with_entropy else None
    if SUPPORT in rollout.trace:
        strategy = strategy.without_truncation()

    def piece(rows: slice, steps: slice) -> Tensor:
        """Log-probabilities (and entropies) `[1 or 2, b, S, t]` of some instances and steps."""
        # All steps of all solutions are queries of their instance, Q = S * t.
        state = {
            key: value[rows, :, steps].flatten(1, 2)  # [b, Q, ...]
            for key, value in rollout.trace.items()
        }
        function = log_prob_fn
        if by_instance is not None and rows != slice(0, batch):
            function = by_instance(rows)
        chosen = actions[rows, :, steps].flatten(1)  # [b, Q]
        log_probs, entropy = function(state, chosen, strategy, with_entropy)
        values = [log_probs] if entropy is None else [log_probs, entropy]
        return torch.stack(values).unflatten(-1, (num_starts, -1))

    size = num_starts * rollout.trace["action_mask"].shape[-1]
    limit, max_unsplit = PIECE.get(actions.device.type, PIECE_ELSEWHERE), MAX_UNSPLIT
    if fused:
        size, limit, max_unsplit = num_starts, FUSED_QUERIES, 1
    plan = list(_plan(rollout, size, limit, max_unsplit, chunk, by_instance is not None))
    recompute = torch.is_grad_enabled() and (len(plan) > 1 or len(plan[0][1]) > 1)
    results = []
    for rows, parts in plan:
        pieces = [
            checkpoint(piece, rows, steps, use_reentrant=False) if recompute else piece(rows, steps)
            for steps in parts
        ]
        result = torch.cat(pieces, -1)  # [1 or 2, b, S, t]
        # After its last step an instance waits for its batch mates, with probability one.
        results.append(F.pad(result, (rollout.forced, num_steps - result.shape[-1])))
    values = torch.cat(results, 1)  # [1 or 2, B, S, T]
    return values[0], values[1] if with_entropy else None


def _plan(
    rollout: Rollout, size: int, limit: int, max_unsplit: int, chunk: int | None, splits: bool
) -> Iterator[tuple[slice, list[slice]]]:
    """Instances that are replayed together, and the pieces of their steps.

    Args:
        rollout: The rollout.
        size: What a step of one instance needs.
        limit: What a piece may need.
        max_unsplit: Up to this many times as much is not split.
        chunk: Steps per piece; None: chosen by size.
        splits: Whether a piece may consist of some instances.
    """
    batch, _, steps = rollout.actions.shape
    steps -= rollout.forced
    if chunk is not None:
        yield slice(0, batch), _cut(steps, chunk)
        return
    if batch * steps * size <= max_unsplit * limit:
        yield slice(0, batch), _cut(steps, steps)
        return
    if not splits:
        yield slice(0, batch), _cut(steps, max(1, limit // (batch * size)))
        return
    lengths = _lengths(rollout)
    rows_at_once = max(1, limit // (steps * size))
    for first in range(0, batch, rows_at_once):
        rows = slice(first, min(first + rows_at_once, batch))
        longest = steps if lengths is None else max(lengths[rows])
        yield rows, _cut(longest, max(1, limit // size))


def _cut(length: int, size: int) -> list[slice]:
    return [slice(first, min(first + size, length)) for first in range(0, length, size)]


def _lengths(rollout: Rollout) -> list[int] | None:
    """Steps that the longest solution of each instance takes, at least 1; None: all the same."""
    done = rollout.trace.get("done")  # [B, S, T', 1]
    if done is None:
        return None
    return (~done).sum((2, 3)).amax(1).clamp_min(1).tolist()
