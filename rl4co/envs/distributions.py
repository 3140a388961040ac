"""From what a user calls a distribution to samplers of coordinates and values.

Everything a generator draws comes from a :class:`Sampler`. :func:`get_sampler` makes one from
whatever the user wrote as "distribution": a name, a constant, a torch distribution or code;
:func:`build_samplers` makes all samplers of a generator and shares out its keyword options.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial, singledispatch
from numbers import Real
from typing import Any

from torch.distributions import Distribution

from rl4co.core.errors import ConfigError, UnknownArgumentError, UnknownNameError
from rl4co.envs.sampler_adapters import (
    CallableSampler,
    ClippedSampler,
    DistributionSampler,
    IntegerSampler,
    accepts_rng,
    is_required,
    parameters_of,
)
from rl4co.envs.samplers import (
    SAMPLERS,
    TORCH_NAMES,
    ConstantSampler,
    DistributionLike,
    IntervalSampler,
    Sampler,
)


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
        UnknownNameError: No distribution has this name, or none of its options.
        ConfigError: An option is missing or out of range.

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
        owner = f"option of the distribution{'s' if len(wanted) > 1 else ''} of {', '.join(wanted)}"
        raise UnknownArgumentError(owner, unknown[0], accepted)
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
        specific = {
            key: options[f"{name}_{key}"] for key in self.accepted if f"{name}_{key}" in options
        }
        selected = {**shared, **specific}
        missing = [f"{name}_{key}" for key in self.required if key not in selected]
        if missing:
            raise ConfigError(
                f"expected the options {missing} for the distribution of {name!r}, got "
                f"{sorted(options)}; pass them as keyword arguments"
            )
        return self.build(**selected)


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
    parameters = parameters_of(distribution)
    if parameters is None or any(is_required(p) or p.kind is p.VAR_POSITIONAL for p in parameters):
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
    if distribution in TORCH_NAMES:
        return _named_recipe(TORCH_NAMES[distribution], low, high)
    if any(p.name == "validate_args" for p in parameters_of(distribution) or ()):
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

    parameters = parameters_of(factory) or []
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
