"""Import path of rollouts, logits filters and decoding strategies."""

from __future__ import annotations

from rl4co.core.ops import get_log_likelihood
from rl4co.decoding.logits import process_logits
from rl4co.decoding.moves import rollout
from rl4co.decoding.rollout import random_policy
from rl4co.decoding.strategies import (
    BeamSearch,
    DecodingStrategy,
    Evaluate,
    Greedy,
    Sampling,
    get_decoding_strategy,
)

__all__ = [
    "BeamSearch",
    "DecodingStrategy",
    "Evaluate",
    "Greedy",
    "Sampling",
    "get_decoding_strategy",
    "get_log_likelihood",
    "process_logits",
    "random_policy",
    "rollout",
]
