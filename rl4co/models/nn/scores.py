"""Compatibility of queries and keys: functions that attention layers can exchange.

A score function takes queries `[*B, N, d]` and keys `[*B, M, d]` and returns `[*B, N, M]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor

from rl4co.core.errors import UnknownNameError

ScoreFn: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def dot_score(query: Tensor, key: Tensor) -> Tensor:
    """$q \\cdot k$."""
    return query @ key.transpose(-2, -1)


def cauchy_score(query: Tensor, key: Tensor) -> Tensor:
    """$1 / (1 + |q - k|^2)$: near is compatible, whatever the lengths of the vectors."""
    squares = query.square().sum(-1).unsqueeze(-1) + key.square().sum(-1).unsqueeze(-2)
    distance = (squares - 2 * dot_score(query, key)).clamp_min(0)
    return 1 / (1 + distance)


SCORES: dict[str, ScoreFn] = {"dot": dot_score, "cauchy": cauchy_score}


def get_score(score: str | ScoreFn) -> ScoreFn:
    """The score function of this name, or the function that was passed."""
    if not isinstance(score, str):
        return score
    if score not in SCORES:
        raise UnknownNameError("score", score, SCORES)
    return SCORES[score]
