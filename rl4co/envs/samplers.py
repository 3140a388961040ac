"""Samplers by name: the distributions of the literature, for coordinates and other values.

A sampler is an object with one method `sample(size, rng)`. Random numbers come from `rng` alone
(None: torch's global generator).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch

from torch import Tensor
from torch.distributions import Beta, Distribution, Exponential, Normal, Poisson, Uniform

from rl4co.core.errors import ConfigError
from rl4co.core.rng import forked_rng
from rl4co.envs.point_patterns import (
    Rng,
    Size,
    clusters,
    device_of,
    gaussian_mixture,
    half_clustered,
    multi_gaussian_mixtures,
    rand,
    randn,
    uniform_clustered_or_mixed,
)


@runtime_checkable
class Sampler(Protocol):
    """Draws a tensor of any size."""

    def sample(self, size: torch.Size, rng: torch.Generator | None = None) -> Tensor:
        """A tensor of shape `size`; `rng=None` draws from torch's global generator."""
        ...


#: What can be given as a distribution: name, constant, torch distribution, callable or sampler.
DistributionLike: TypeAlias = str | float | type | Distribution | Sampler | Callable[..., Any]


class SamplerBase:
    """Shared front of the samplers below, which implement :meth:`_draw`."""

    def sample(self, size: Size, rng: Rng = None) -> Tensor:
        """A tensor of shape `size`; `rng=None` draws from torch's global generator."""
        return self._draw(torch.Size(size), rng)

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class ConstantSampler(SamplerBase):
    """The same value everywhere."""

    value: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return torch.full(size, float(self.value), device=device_of(rng))


class _Rule(NamedTuple):
    """What the values of an option must be."""

    text: str
    holds: Callable[[Any], bool]


_POSITIVE = _Rule("> 0", lambda value: value > 0)
_NON_NEGATIVE = _Rule(">= 0", lambda value: value >= 0)
_COUNT = _Rule("to be an integer >= 1", lambda value: isinstance(value, int) and value >= 1)
_COUNT_OR_ZERO = _Rule("to be an integer >= 0", lambda value: isinstance(value, int) and value >= 0)


@dataclass(frozen=True, kw_only=True)
class IntervalSampler(SamplerBase):
    """What all named samplers share: the interval that the values are meant for.

    The other fields of a subclass are the options that its name takes; `RULES` says what values
    they may have, `BOUNDED` whether all values lie in the interval.
    """

    RULES: ClassVar[Mapping[str, _Rule]] = {}
    BOUNDED: ClassVar[bool] = True

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ConfigError(f"expected low <= high, got low={self.low}, high={self.high}")
        for option, rule in self.RULES.items():
            if not rule.holds(getattr(self, option)):
                raise ConfigError(f"expected {option} {rule.text}, got {getattr(self, option)!r}")

    def _stretch(self, unit: Tensor) -> Tensor:
        """`[0, 1]` → `[low, high]`; the clamp takes away what rounding adds to the upper end."""
        return (self.low + (self.high - self.low) * unit).clamp(self.low, self.high)


class UniformSampler(IntervalSampler):
    """Uniform on `[low, high]`."""

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return self._stretch(rand(size, rng))


class CenterSampler(IntervalSampler):
    """Always the middle of the interval: a depot in the centre of the square."""

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return torch.full(size, (self.low + self.high) / 2, device=device_of(rng))


class CornerSampler(IntervalSampler):
    """Always the lower end: a depot in the corner `(low, low)` of the square."""

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return torch.full(size, float(self.low), device=device_of(rng))


@dataclass(frozen=True, kw_only=True)
class NormalSampler(IntervalSampler):
    """Normal with the given mean and standard deviation (not truncated)."""

    RULES = {"std": _NON_NEGATIVE}
    BOUNDED = False

    mean: float
    std: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        return self.mean + self.std * randn(size, rng)


@dataclass(frozen=True, kw_only=True)
class ExponentialSampler(IntervalSampler):
    """Exponential with the given rate, that is with mean `1 / rate` (not truncated)."""

    RULES = {"rate": _POSITIVE}
    BOUNDED = False

    rate: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        values = torch.empty(size, device=device_of(rng))
        return values.exponential_(self.rate, generator=rng)


@dataclass(frozen=True, kw_only=True)
class PoissonSampler(IntervalSampler):
    """Poisson counts with the given rate, as floats (not truncated)."""

    RULES = {"rate": _POSITIVE}
    BOUNDED = False

    rate: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        rates = torch.full(size, float(self.rate), device=device_of(rng))
        return torch.poisson(rates, generator=rng)


@dataclass(frozen=True, kw_only=True)
class BetaSampler(IntervalSampler):
    """Beta(alpha, beta) stretched from `[0, 1]` to `[low, high]`."""

    RULES = {"alpha": _POSITIVE, "beta": _POSITIVE}

    alpha: float
    beta: float

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        with forked_rng(rng):
            return self._stretch(Beta(float(self.alpha), float(self.beta)).sample(size))


class PlanarSampler(IntervalSampler):
    """Base of distributions in which the points of an instance depend on each other.

    Subclasses draw in the unit square; the result is stretched to `[low, high]²`.

    Shapes:
        `size = [*B, N, 2]`
    """

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        if len(size) < 2 or size[-1] != 2:
            raise ConfigError(
                f"expected a size [*B, N, 2] for {type(self).__name__}, got {list(size)}; "
                "this distribution draws points of the plane, use another one for single values"
            )
        return self._stretch(self._unit_square(size, rng))

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class ClusterSampler(PlanarSampler):
    """Gaussian clusters of (nearly) equal size (Bi et al., 2022)."""

    RULES = {"n_cluster": _COUNT}

    n_cluster: int = 3

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        return clusters(size, self.n_cluster, rng)


@dataclass(frozen=True, kw_only=True)
class MixedSampler(PlanarSampler):
    """Half of the nodes in Gaussian clusters, the rest uniform (Bi et al., 2022)."""

    RULES = {"n_cluster_mix": _COUNT}

    n_cluster_mix: int = 1

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        return half_clustered(size, self.n_cluster_mix, rng)


@dataclass(frozen=True, kw_only=True)
class GaussianMixtureSampler(PlanarSampler):
    """Gaussian mixture with centres in `[0, cdist]²`, scaled to the square (Zhou et al., 2023)."""

    RULES = {"num_modes": _COUNT_OR_ZERO, "cdist": _NON_NEGATIVE}

    num_modes: int
    cdist: float

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        return gaussian_mixture(size, self.num_modes, self.cdist, rng)


@dataclass(frozen=True, kw_only=True)
class MixDistributionSampler(PlanarSampler):
    """Each instance is uniform, clustered or mixed with equal probability (Bi et al., 2022)."""

    RULES = {"n_cluster": _COUNT, "n_cluster_mix": _COUNT}

    n_cluster: int = 3
    n_cluster_mix: int = 1

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        return uniform_clustered_or_mixed(size, self.n_cluster, self.n_cluster_mix, rng)


class MixMultiDistributionsSampler(PlanarSampler):
    """Each instance has one of eleven Gaussian-mixture distributions (Zhou et al., 2023)."""

    def _unit_square(self, size: torch.Size, rng: Rng) -> Tensor:
        return multi_gaussian_mixtures(size, rng)


#: Name → sampler class.
SAMPLERS: dict[str, type[IntervalSampler]] = {
    "uniform": UniformSampler,
    "normal": NormalSampler,
    "gaussian": NormalSampler,
    "exponential": ExponentialSampler,
    "beta": BetaSampler,
    "poisson": PoissonSampler,
    "center": CenterSampler,
    "corner": CornerSampler,
    "cluster": ClusterSampler,
    "mixed": MixedSampler,
    "gaussian_mixture": GaussianMixtureSampler,
    "mix_distribution": MixDistributionSampler,
    "mix_multi_distributions": MixMultiDistributionsSampler,
}

#: torch classes that stand for a name, so that `low` and `high` or `<name>_mean` apply to them.
TORCH_NAMES: dict[type, str] = {
    Uniform: "uniform",
    Normal: "normal",
    Exponential: "exponential",
    Poisson: "poisson",
}
