"""Loops of :mod:`rl4co.decoding.likelihood`; importing this module imports numba."""

from __future__ import annotations

import math

from typing import Any

import numpy as np

from rl4co.core.compiled import WIDTH, kernel
from rl4co.core.vectors import (
    add,
    everywhere,
    exp2,
    larger,
    largest_of,
    load,
    multiply,
    store,
    subtract,
    tanh,
    total_of,
)

_ZERO, _ONE = np.float32(0), np.float32(1)
_NOTHING = np.float32(-np.inf)
#: Powers of two are the fastest.
_LOG2_E = np.float32(math.log2(math.e))


@kernel
def evaluate(
    logits: Any, mask: Any, actions: Any, normaliser: Any, chosen: Any,
    clipping: float, start: int, stop: int,
) -> None:  # fmt: skip
    """Log-probabilities of the actions of rows `start`..`stop`.

    Args:
        logits: `[R, N]`.
        mask: Allowed actions `[R, N]`.
        actions: `[R]`.
        normaliser: Logarithms of the softmax's denominators `[R]`, to be written.
        chosen: Log-probabilities `[R]`, to be written.
        clipping: Bound of the tanh clipping.
        start: First row.
        stop: Behind the last one.
    """
    num_actions = logits.shape[1]
    places = (num_actions + WIDTH - 1) // WIDTH * WIDTH
    bias, scores = np.empty(places, np.float32), np.zeros(places, np.float32)
    bound, factor = everywhere(np.float32(clipping)), everywhere(_LOG2_E)
    bias[num_actions:] = _NOTHING
    for row in range(start, stop):
        for j in range(num_actions):
            scores[j] = logits[row, j]
            bias[j] = _ZERO if mask[row, j] else _NOTHING
        top, total = everywhere(_NOTHING), everywhere(_ZERO)
        for j in range(0, places, WIDTH):
            score = add(multiply(bound, tanh(load(scores, j))), load(bias, j))
            store(scores, j, score)
            top = larger(score, top)
        highest = largest_of(top)
        top = everywhere(highest)
        for j in range(0, places, WIDTH):
            weight = exp2(multiply(factor, subtract(load(scores, j), top)))
            total = add(total, weight)
        normaliser[row] = highest + np.log(total_of(total))
        chosen[row] = scores[actions[row]] - normaliser[row]


@kernel
def evaluate_backward(
    logits: Any, mask: Any, actions: Any, normaliser: Any, grad: Any, grad_logits: Any,
    clipping: float, start: int, stop: int,
) -> None:  # fmt: skip
    """Gradients of rows `start`..`stop`, from what :func:`evaluate` wrote.

    Args:
        logits: See :func:`evaluate`, like all that is not listed.
        mask: See there.
        actions: See there.
        normaliser: See there.
        grad: Gradient of the log-probabilities `[R]`.
        grad_logits: Gradient of the logits `[R, N]`, to be written.
        clipping: See there.
        start: See there.
        stop: See there.
    """
    num_actions = logits.shape[1]
    places = (num_actions + WIDTH - 1) // WIDTH * WIDTH
    bias, values = np.empty(places, np.float32), np.zeros(places, np.float32)
    bound, factor = everywhere(np.float32(clipping)), everywhere(_LOG2_E)
    one = everywhere(_ONE)
    for row in range(start, stop):
        for j in range(num_actions):
            values[j] = logits[row, j]
            # Of a forbidden action the probability is zero, and so is the gradient.
            bias[j] = -grad[row] if mask[row, j] else _ZERO
        action, norm = actions[row], everywhere(normaliser[row])
        chosen = values[action]
        for j in range(0, places, WIDTH):
            part = tanh(load(values, j))
            share = exp2(multiply(factor, subtract(multiply(bound, part), norm)))
            slope = multiply(bound, subtract(one, multiply(part, part)))
            store(values, j, multiply(multiply(share, load(bias, j)), slope))
        # d log p_a / d score_i = [i = a] - p_i, d score / d z = C (1 - tanh²)
        part = np.tanh(chosen)
        values[action] += grad[row] * np.float32(clipping) * (_ONE - part * part)
        for j in range(num_actions):
            grad_logits[row, j] = values[j]
