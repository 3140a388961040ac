"""Autoregressive policies: each action depends on the actions before it."""

from __future__ import annotations

from rl4co.models.policies.constructive import ConstructivePolicy
from rl4co.models.policies.modules import ConstructiveDecoder, ConstructiveEncoder


class AutoregressiveEncoder(ConstructiveEncoder):
    """Encoder of an autoregressive policy."""


class AutoregressiveDecoder(ConstructiveDecoder):
    """Decoder of an autoregressive policy."""


class AutoregressivePolicy(ConstructivePolicy):
    """A constructive policy $\\pi(a | x) = \\prod_t g(a_t | a_{<t}, s_t, h)$."""
