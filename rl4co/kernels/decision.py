"""One decision of the Attention Model's pointer, for one solution, in a compiled loop.

The plain twin is :class:`rl4co.models.nn.attention.PointerAttention` followed by the filters of
:mod:`rl4co.decoding.logits` and a choice. Loops run over nodes, one after the other in memory, so
that the compiler uses vector instructions: keys and logit keys are transposed beforehand.

Solutions are rows: row r belongs to instance `r // S`.
"""

from __future__ import annotations

import math

from typing import Any, NamedTuple

import numpy as np

from rl4co.kernels.compile import compiled
from rl4co.kernels.softmax import (
    HIGHEST,
    ONE,
    TWO,
    ZERO,
    exponentials,
    softmax_weights,
)

_LOG2_E = np.float32(math.log2(math.e))
#: Strictly below the total even after rounding, as in `rl4co.decoding.logits.sample_weights`.
_BELOWONE = np.float32(1.0 - 2.0**-20)


class Weights(NamedTuple):
    """What the decoder prepared, as arrays of float32.

    Attributes:
        key: Glimpse keys, transposed `[B, H, d, N]`.
        value: Glimpse values `[B, H, N, d]`.
        logit_key: Logit keys with the output projection folded in, transposed `[B, D, N]`.
        graph: Graph context `[B, D]`.
        table: Rows of the context's table `[R, D]`.
        feature_weight: Weights of the context's features `[F, D]`.
        scale: Bound of the tanh clipping over the temperature `[1]`.
    """

    key: Any
    value: Any
    logit_key: Any
    graph: Any
    table: Any
    feature_weight: Any
    scale: Any


class Scratch(NamedTuple):
    """Arrays that one thread works with.

    Attributes:
        query: `[D]`.
        barrier: 0 for allowed nodes, :data:`rl4co.kernels.softmax.FORBIDDEN` for others `[N]`.
        scores: `[N]`.
        power: The whole powers of two of the scores' exponentials `[N]`.
        bits: The same memory as integers `[N]`.
        heads: `[D]`.
    """

    query: Any
    barrier: Any
    scores: Any
    power: Any
    bits: Any
    heads: Any


class Solutions(NamedTuple):
    """What a loop reads and writes for each solution.

    Attributes:
        forced: First actions `[B * S, K]`.
        uniform: Numbers to draw the other actions with `[T - K, B * S]`; no rows: take the best.
        actions: `[B * S, T]`.
        log_probs: Their log-probabilities `[B * S, T]`; of forced ones 0.
        steps: Steps that were taken `[B * S]`; -1: there was no way on.
    """

    forced: Any
    uniform: Any
    actions: Any
    log_probs: Any
    steps: Any


def make_scratch(num_nodes: int, embed_dim: int) -> Scratch:
    """Arrays for one thread."""
    power = np.empty(num_nodes, np.float32)
    return Scratch(
        query=np.empty(embed_dim, np.float32),
        barrier=np.empty(num_nodes, np.float32),
        scores=np.empty(num_nodes, np.float32),
        power=power,
        bits=power.view(np.int32),
        heads=np.empty(embed_dim, np.float32),
    )


@compiled(fast_sums=True, inline=True)
def decide(weights: Any, scratch: Any, solutions: Any, b: int, row: int, t: int) -> int:
    """The action of a row at step t, for the query and the barrier in the scratch.

    Args:
        weights: See :class:`Weights`.
        scratch: See :class:`Scratch`.
        solutions: See :class:`Solutions`; the action and its log-probability are written there.
        b: Instance.
        row: Solution.
        t: Step.
    """
    num_forced = solutions.forced.shape[1]
    if t < num_forced:
        chosen = solutions.forced[row, t]
    else:
        attend(weights, scratch, b)
        total = score_nodes(weights, scratch, b)
        chosen = choose(scratch, solutions, total, row, t - num_forced)
        solutions.log_probs[row, t] = np.log(scratch.scores[chosen] / total)
    solutions.actions[row, t] = chosen
    return chosen


@compiled(fast_sums=True, inline=True)
def attend(weights: Any, scratch: Any, b: int) -> None:
    """The glimpse: writes the heads."""
    _, num_heads, dim, num_nodes = weights.key.shape
    query, scores, heads = scratch.query, scratch.scores, scratch.heads
    scale = np.float32(math.log2(math.e) / math.sqrt(dim))
    for h in range(num_heads):
        for n in range(num_nodes):
            scores[n] = scratch.barrier[n]
        for c in range(dim):
            factor = query[h * dim + c] * scale
            for n in range(num_nodes):
                scores[n] += factor * weights.key[b, h, c, n]
        share = ONE / softmax_weights(scores, scratch.power, scratch.bits)
        for c in range(dim):
            heads[h * dim + c] = ZERO
        for n in range(num_nodes):
            if scores[n] > ZERO:
                weight = scores[n] * share
                for c in range(dim):
                    heads[h * dim + c] += weight * weights.value[b, h, n, c]


@compiled(fast_sums=True, inline=True)
def score_nodes(weights: Any, scratch: Any, b: int) -> float:
    """Writes what is proportional to the probability of each node; returns the sum."""
    num_nodes = scratch.scores.size
    scores, heads = scratch.scores, scratch.heads
    for n in range(num_nodes):
        scores[n] = ZERO
    for i in range(heads.size):
        factor = heads[i] * TWO * _LOG2_E
        for n in range(num_nodes):
            scores[n] += factor * weights.logit_key[b, i, n]
    # tanh z = 1 - 2 / (1 + e^{2z})
    for n in range(num_nodes):
        scores[n] = min(scores[n], HIGHEST)
    exponentials(scores, scratch.power, scratch.bits)
    scale = weights.scale[0] * _LOG2_E
    for n in range(num_nodes):
        scores[n] = scratch.barrier[n] + scale * (ONE - TWO / (ONE + scores[n]))
    return softmax_weights(scores, scratch.power, scratch.bits)


@compiled(fast_sums=True, inline=True)
def choose(scratch: Any, solutions: Any, total: float, row: int, chance: int) -> int:
    """The most likely node, or one drawn with the row's uniform number; the first on ties."""
    scores = scratch.scores
    chosen = 0
    if chance < solutions.uniform.shape[0]:
        threshold = solutions.uniform[chance, row] * (total * _BELOWONE)
        reached = scores[0]
        while reached <= threshold and chosen < scores.size - 1:
            chosen += 1
            reached += scores[chosen]
    else:
        for n in range(scores.size):
            if scores[n] > scores[chosen]:
                chosen = n
    return chosen
