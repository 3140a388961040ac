"""Exponentials and their sum over a row of scores, for the loops of this package.

The compiler has vector instructions for sums and products, not for exponentials; here they are made
of such. Loops run over entries one after the other in memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4co.kernels.compile import compiled

ONE, TWO, ZERO = np.float32(1), np.float32(2), np.float32(0)
#: Score of what is not allowed: far below all others, and its exponential is zero.
FORBIDDEN = np.float32(-1e9)
#: Scores outside of this range count as its ends.
LOWEST, HIGHEST = np.float32(-126), np.float32(126)


@compiled(fast_sums=True, inline=True)
def softmax_weights(scores: Any, power: Any, bits: Any) -> float:
    """Replaces scores x by $2^{x - \\max x}$ and returns their sum.

    Args:
        scores: `[N]`.
        power: Scratch `[N]`.
        bits: The memory of `power` as integers `[N]`.
    """
    highest = scores[0]
    for n in range(scores.size):
        highest = max(highest, scores[n])
    for n in range(scores.size):
        scores[n] -= highest
    exponentials(scores, power, bits)
    total = ZERO
    for n in range(scores.size):
        total += scores[n]
    return total


@compiled(fast_sums=True, inline=True)
def exponentials(scores: Any, power: Any, bits: Any) -> None:
    """Replaces scores x of at most 126 by $2^x$, to 2e-7; zero for what is forbidden.

    $2^x = 2^k 2^f$ with a whole number k, whose power is made of its bits, and a polynomial for the
    fraction f between -1/2 and 1/2. Arguments are those of :func:`softmax_weights`.
    """
    for n in range(scores.size):
        x = max(scores[n], LOWEST)
        whole = np.int32(np.floor(x + np.float32(0.5)))
        f = x - np.float32(whole)
        bits[n] = (whole + np.int32(127)) << np.int32(23)
        y = np.float32(1.3390863e-3)
        y = y * f + np.float32(9.6760318e-3)
        y = y * f + np.float32(5.5503570e-2)
        y = y * f + np.float32(2.4022107e-1)
        y = y * f + np.float32(6.9314718e-1)
        y = y * f + ONE
        scores[n] = y if x > LOWEST else ZERO
    for n in range(scores.size):
        scores[n] *= power[n]
