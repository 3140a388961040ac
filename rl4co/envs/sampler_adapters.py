"""Samplers made of other things: of torch distributions, of the user's functions, of samplers.

Code that knows only torch's global generator, such as `torch.distributions`, runs in a fork of it
that is seeded from `rng`.
"""

from __future__ import annotations

import inspect
import math

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.core.rng import forked_rng
from rl4co.envs.point_patterns import Rng
from rl4co.envs.samplers import Sampler, SamplerBase


def accepts_rng(function: Callable[..., Any]) -> bool:
    """Whether a function is to be called with `(size, rng)` rather than `(size)`."""
    parameters = parameters_of(function) or []
    return any(p.name == "rng" for p in parameters) or sum(map(is_required, parameters)) >= 2


@dataclass(frozen=True)
class DistributionSampler(SamplerBase):
    """Adapter of a `torch.distributions` object; its batch and event axes come last in a size."""

    distribution: Distribution

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        drawn = self.distribution.batch_shape + self.distribution.event_shape
        cut = len(size) - len(drawn)
        if cut < 0 or size[cut:] != drawn:
            raise ConfigError(
                f"expected a distribution of shape [] or of the last axes of {list(size)}, got "
                f"{self.distribution!r} of shape {list(drawn)}"
            )
        with forked_rng(rng):
            return _float32(self.distribution.sample(size[:cut]))


@dataclass(frozen=True)
class CallableSampler(SamplerBase):
    """Adapter of a function `(size) -> Tensor` or `(size, rng) -> Tensor`."""

    function: Callable[..., Any]

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        if accepts_rng(self.function):
            values = self.function(size, rng)
        else:
            with forked_rng(rng):
                values = self.function(size)
        if not isinstance(values, Tensor) or values.shape != size:
            got = list(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ConfigError(
                f"expected {self.function!r} to return a tensor of shape {list(size)}, got {got}"
            )
        return _float32(values)


@dataclass(frozen=True)
class ClippedSampler(SamplerBase):
    """Another sampler's values, clipped to `[low, high]`."""

    sampler: Sampler
    low: float
    high: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return self.sampler.sample(size, rng).clamp(self.low, self.high)


@dataclass(frozen=True)
class IntegerSampler(SamplerBase):
    """Another sampler's values rounded down, as floats, and then clipped to `[low, high]`."""

    sampler: Sampler
    low: float = -math.inf
    high: float = math.inf

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return self.sampler.sample(size, rng).floor().clamp(self.low, self.high)


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Parameters of a callable; None for built-in functions (torch.rand), which do not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return None


def is_required(parameter: inspect.Parameter) -> bool:
    """Whether a parameter has to be given, by its place."""
    positional = (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.kind in positional and parameter.default is parameter.empty


def _float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype == torch.float64 else values
