"""Samplers of coordinates and values: by name, constant, torch distribution or the user's own code.

Everything a generator draws comes from a :class:`Sampler`, an object with one method
`sample(size, rng)`. :func:`get_sampler` makes one from whatever the user wrote as "distribution";
:func:`build_samplers` makes all samplers of a generator and shares out its keyword options.
Random numbers come from `rng` alone (None: torch's global generator). Code that knows only the
global generator, such as `torch.distributions`, runs in a fork of it that is seeded from `rng`.
"""

from __future__ import annotations

import inspect
import math

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import partial, singledispatch
from numbers import Real
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

import torch

from torch import Tensor
from torch.distributions import Beta, Distribution, Exponential, Normal, Poisson, Uniform

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.rng import draw_seed
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


# ---------------------------------------------------------------- named distributions


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
        unit = DistributionSampler(Beta(float(self.alpha), float(self.beta))).sample(size, rng)
        return self._stretch(unit)


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
_TORCH_NAMES: dict[type, str] = {
    Uniform: "uniform",
    Normal: "normal",
    Exponential: "exponential",
    Poisson: "poisson",
}


# ---------------------------------------------------------------- adapters of foreign code


@contextmanager
def forked_rng(rng: torch.Generator | None) -> Iterator[None]:
    """Runs code that draws from torch's global generator as if it drew from `rng`.

    The global state is the same afterwards as before. With `rng=None` nothing is forked.
    """
    if rng is None:
        yield
        return
    seed = draw_seed(rng)
    # `torch.manual_seed` would also queue a seed for CUDA devices that are not in use yet.
    cuda = torch.cuda.is_initialized()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else ()):
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.manual_seed_all(seed)
        yield


def accepts_rng(function: Callable[..., Any]) -> bool:
    """Whether a function is to be called with `(size, rng)` rather than `(size)`."""
    parameters = _parameters(function) or []
    return any(p.name == "rng" for p in parameters) or sum(map(_is_required, parameters)) >= 2


@dataclass(frozen=True)
class DistributionSampler(SamplerBase):
    """Adapter of a `torch.distributions` object; its batch and event axes come last in a size."""

    distribution: Distribution

    def _draw(self, size: torch.Size, rng: Rng) -> Tensor:
        own = self.distribution.batch_shape + self.distribution.event_shape
        cut = len(size) - len(own)
        if cut < 0 or size[cut:] != own:
            raise ConfigError(
                f"expected a distribution of shape [] or of the last axes of {list(size)}, got "
                f"{self.distribution!r} of shape {list(own)}"
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


# ---------------------------------------------------------------- from a description to a sampler


@dataclass(frozen=True)
class SamplerSpec:
    """Description of one sampler of a generator.

    Args:
        distribution: What :func:`get_sampler` takes.
        low: Lower end of the values.
        high: Upper end of the values.
        clip: Whether values of *named* distributions are clipped to `[low, high]`. What the user
            brings along (objects, functions, constants) is never clipped.
        integer: Whether values are rounded down; `high` is then excluded, and values of named
            distributions are clipped to `[low, high - 1]`.
        sampler: Ready-made sampler; wins over `distribution`.
    """

    distribution: DistributionLike
    low: float = 0.0
    high: float = 1.0
    clip: bool = False
    integer: bool = False
    sampler: Sampler | Distribution | None = None


def get_sampler(
    name: str,
    distribution: DistributionLike,
    low: float = 0.0,
    high: float = 1.0,
    **kwargs: Any,
) -> Sampler:
    """The sampler of the variable `name`.

    Args:
        name: Name of the variable; prefix of its options.
        distribution: One of
            - a number: constant;
            - a name: `uniform`, `normal` or `gaussian` (options `mean`, `std`), `exponential`,
              `poisson` (`rate`), `beta` (`alpha`, `beta`; stretched to `[low, high]`), `center`,
              `corner`, and for points of the plane `cluster` (`n_cluster`), `mixed`
              (`n_cluster_mix`), `gaussian_mixture` (`num_modes`, `cdist`), `mix_distribution`
              (`n_cluster`, `n_cluster_mix`), `mix_multi_distributions`;
            - a `torch.distributions` class (its parameters are the options) or object;
            - a function `(size) -> Tensor` or `(size, rng) -> Tensor`;
            - a class, or a function without required parameters, that is called with the options
              and returns a distribution or sampler;
            - a :class:`Sampler`.
        low: Lower end of the values.
        high: Upper end of the values.
        kwargs: Options, as `<name>_<option>` or `<option>`, e.g. `loc_mean=0.5`.

    Raises:
        UnknownNameError: No distribution has this name.
        ConfigError: An option is missing, unknown or out of range.

    Example:
        >>> sampler = get_sampler("loc", "normal", loc_mean=0.5, loc_std=0.1)
        >>> sampler.sample(torch.Size([4, 20, 2])).shape
        torch.Size([4, 20, 2])
    """
    return build_samplers(kwargs, **{name: SamplerSpec(distribution, low, high)})[name]


def build_samplers(options: Mapping[str, Any], **specs: SamplerSpec | None) -> dict[str, Sampler]:
    """All samplers of a generator at once, so that an option that none of them takes is an error.

    Args:
        options: `<name>_<option>` for one sampler, `<option>` for every sampler that takes it; the
            first form wins.
        specs: Name of the variable → description; None leaves the variable out.

    Returns:
        Name → sampler, without the variables that were left out.
    """
    wanted = {name: spec for name, spec in specs.items() if spec is not None}
    recipes = {name: _recipe_of(spec) for name, spec in wanted.items()}
    accepted = {key for name, recipe in recipes.items() for key in recipe.keys(name)}
    unknown = [key for key in options if key not in accepted]
    if unknown and not any(recipe.takes_all for recipe in recipes.values()):
        raise ConfigError(
            f"expected options among {sorted(accepted)} for the distributions of "
            f"{', '.join(wanted)}, got {unknown}"
        )
    return {
        name: _confine(recipes[name].build_with(name, options), spec, recipes[name].named)
        for name, spec in wanted.items()
    }


def _confine(sampler: Sampler, spec: SamplerSpec, named: bool) -> Sampler:
    """Applies the spec's `integer` and `clip`."""
    if spec.integer and named:
        return IntegerSampler(sampler, spec.low, spec.high - 1)
    if spec.integer:
        return IntegerSampler(sampler)
    if spec.clip and named and isinstance(sampler, IntervalSampler) and not sampler.BOUNDED:
        return ClippedSampler(sampler, spec.low, spec.high)
    return sampler


@dataclass(frozen=True)
class _Recipe:
    """How to make a sampler: a function, the options it takes, those it needs."""

    build: Callable[..., Sampler]
    accepted: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    named: bool = False
    takes_all: bool = False  # a factory with **kwargs

    def keys(self, name: str) -> list[str]:
        return [*(f"{name}_{option}" for option in self.accepted), *self.accepted]

    def build_with(self, name: str, options: Mapping[str, Any]) -> Sampler:
        if self.takes_all:
            return self.build(**options)
        shared = {key: options[key] for key in self.accepted if key in options}
        own = {key: options[f"{name}_{key}"] for key in self.accepted if f"{name}_{key}" in options}
        chosen = {**shared, **own}
        missing = [f"{name}_{key}" for key in self.required if key not in chosen]
        if missing:
            raise ConfigError(
                f"expected the options {missing} for the distribution of {name!r}, got "
                f"{sorted(options)}; pass them as keyword arguments"
            )
        return self.build(**chosen)


def _recipe_of(spec: SamplerSpec) -> _Recipe:
    if spec.sampler is not None:
        return _Recipe(partial(_adapt, spec.sampler))
    return _recipe(spec.distribution, spec.low, spec.high)


@singledispatch
def _recipe(distribution: Any, low: float, high: float) -> _Recipe:
    """Recipe of a sampler object, a sampling function or a factory."""
    if callable(getattr(distribution, "sample", None)):
        return _Recipe(partial(_adapt, distribution))
    if not callable(distribution):
        raise ConfigError(
            "expected a number, a name, a torch distribution, a callable or a sampler as "
            f"distribution, got {distribution!r}"
        )
    parameters = _parameters(distribution)
    if parameters is None or any(_is_required(p) or p.kind is p.VAR_POSITIONAL for p in parameters):
        return _Recipe(partial(CallableSampler, distribution))
    return _factory_recipe(distribution)


@_recipe.register(Real)
def _constant_recipe(distribution: float, low: float, high: float) -> _Recipe:
    return _Recipe(partial(ConstantSampler, float(distribution)))


@_recipe.register(str)
def _named_recipe(distribution: str, low: float, high: float) -> _Recipe:
    if distribution not in SAMPLERS:
        raise UnknownNameError("distribution", distribution, SAMPLERS)
    cls = SAMPLERS[distribution]
    options = [field for field in fields(cls) if field.name not in ("low", "high")]
    return _Recipe(
        partial(cls, low=low, high=high),
        accepted=tuple(field.name for field in options),
        required=tuple(field.name for field in options if field.default is MISSING),
        named=True,
    )


@_recipe.register(type)
def _class_recipe(distribution: type, low: float, high: float) -> _Recipe:
    if distribution in _TORCH_NAMES:
        return _named_recipe(_TORCH_NAMES[distribution], low, high)
    if any(p.name == "validate_args" for p in _parameters(distribution) or ()):
        # Importing TorchRL switches off torch's own check of the parameters.
        return _factory_recipe(partial(distribution, validate_args=True))
    return _factory_recipe(distribution)


def _factory_recipe(factory: Callable[..., Any]) -> _Recipe:
    """Recipe that calls a class or a function with the options and adapts what comes back."""

    def build(**options: Any) -> Sampler:
        try:
            product = factory(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"expected options that {factory!r} accepts, got {options}: {error}"
            ) from error
        return _adapt(product)

    parameters = _parameters(factory) or []
    keywords = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return _Recipe(
        build,
        accepted=tuple(p.name for p in keywords),
        required=tuple(p.name for p in keywords if p.default is p.empty),
        takes_all=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _adapt(thing: Any) -> Sampler:
    """A :class:`Sampler` from an object with a method `sample`."""
    if isinstance(thing, Distribution):
        return DistributionSampler(thing)
    sample = getattr(thing, "sample", None)
    if not callable(sample):
        raise ConfigError(
            f"expected a torch distribution or an object with a method sample(size), got {thing!r}"
        )
    return thing if accepts_rng(sample) else CallableSampler(sample)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Parameters of a callable; None for built-in functions (torch.rand), which do not tell."""
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return None


def _is_required(parameter: inspect.Parameter) -> bool:
    positional = (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.kind in positional and parameter.default is parameter.empty


def _float32(values: Tensor) -> Tensor:
    return values.float() if values.dtype == torch.float64 else values
