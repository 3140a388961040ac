"""Generators written for the published package: `_generate(batch_size)` without a random stream."""

from __future__ import annotations

import functools

from typing import Any

import torch

from tensordict import TensorDict

from rl4co.core.rng import forked_rng
from rl4co.envs.sampler_adapters import accepts_rng


def adapt_generator(cls: type) -> type:
    """Lets a published `_generate`, which draws from the global random state, follow a stream.

    Args:
        cls: A generator, right after it is created; it is changed in place.
    """
    method: Any = vars(cls).get("_generate")
    if method is None or accepts_rng(functools.partial(method, None)):
        return cls

    @functools.wraps(method)
    def _generate(
        self: Any, batch_size: torch.Size, rng: torch.Generator | None = None
    ) -> TensorDict:
        with forked_rng(rng):
            instances: TensorDict = method(self, list(batch_size))
        return instances

    setattr(cls, "_generate", _generate)  # noqa: B010
    return cls
