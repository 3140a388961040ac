"""`Generator`: the source of instances, and the pieces that generators of many problems share.

A generator is called with a batch size and gives a TensorDict of instances. It holds parameters
only; randomness comes in through `rng`, so the same `rng` state always gives the same instances and
the global random state is left alone.
"""

from __future__ import annotations

import inspect

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, ClassVar

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.adapters import adapt
from rl4co.core.arguments import RecordsArguments, constructor_keywords
from rl4co.core.errors import ConfigError, UnknownArgumentError
from rl4co.envs.distributions import SamplerSpec, build_samplers
from rl4co.envs.samplers import Sampler


class Generator(RecordsArguments, ABC):
    """Base class of all generators.

    A subclass keeps its parameters as attributes and implements :meth:`_generate`.
    """

    #: Constructor argument that sets the size of an instance. Not set: its first argument, if that
    #: counts something (`num_...`).
    size_argument: ClassVar[str | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        adapt("generator", cls)

    @classmethod
    def size_name(cls) -> str | None:
        """Constructor argument that sets the size of an instance; None if there is one size."""
        _, *arguments = inspect.signature(cls.__init__).parameters
        counted = [name for name in arguments[:1] if name.startswith("num_")]
        return cls.size_argument or next(iter(counted), None)

    def __call__(
        self, batch_size: int | Sequence[int], rng: torch.Generator | None = None
    ) -> TensorDict:
        """A batch of instances.

        Args:
            batch_size: Number of instances, or several batch axes; `()` gives one instance without
                batch axis.
            rng: Source of randomness; None draws from torch's global generator.

        Returns:
            Instances with batch size `[*B]`, on the device of `rng`.
        """
        size = parse_batch_size(batch_size)
        if rng is not None and not isinstance(rng, torch.Generator):
            raise ConfigError(
                f"expected a torch.Generator or None as rng, got {rng!r}; "
                "for a seed pass torch.Generator().manual_seed(seed)"
            )
        return self._generate(size, rng)

    def build_samplers(
        self, options: Mapping[str, Any], **specs: SamplerSpec | None
    ) -> dict[str, Sampler]:
        """Samplers from the options in `**kwargs` of the constructor.

        Args:
            options: See :func:`~rl4co.envs.distributions.build_samplers`.
            specs: See :func:`~rl4co.envs.distributions.build_samplers`.

        Raises:
            UnknownArgumentError: An option is neither one of a sampler nor one of the constructor.
        """
        try:
            return build_samplers(options, **specs)
        except UnknownArgumentError as error:
            valid = {*error.known, *constructor_keywords(type(self))}
            owner = f"argument of {type(self).__name__}"
            raise UnknownArgumentError(owner, str(error.name), valid) from None

    @abstractmethod
    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        """Instances with batch size `batch_size`, drawn from `rng` alone."""

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"


def sample_locs_and_depot(
    batch_size: torch.Size,
    num_loc: int,
    loc_sampler: Sampler,
    depot_sampler: Sampler | None = None,
    rng: torch.Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Customers and the depot of an instance.

    Without a sampler of its own the depot is the first of `num_loc + 1` points drawn together, so
    it follows the same distribution (and lies in the same clusters) as the customers.

    Returns:
        `locs [*B, num_loc, 2]` and `depot [*B, 2]`.
    """
    if depot_sampler is None:
        points = loc_sampler.sample(torch.Size((*batch_size, num_loc + 1, 2)), rng)
        return points[..., 1:, :], points[..., 0, :]
    # [*B, 1, 2]: distributions of whole instances see one point per instance, not B points in one.
    depot = depot_sampler.sample(torch.Size((*batch_size, 1, 2)), rng).squeeze(-2)  # [*B, 2]
    return loc_sampler.sample(torch.Size((*batch_size, num_loc, 2)), rng), depot


def parse_batch_size(batch_size: int | Sequence[int]) -> torch.Size:
    """A `torch.Size` from one positive integer or a sequence of them."""
    sizes: Any = (batch_size,) if _is_integer(batch_size) else batch_size
    if not isinstance(sizes, Sequence) or not all(_is_integer(size) and size > 0 for size in sizes):
        raise ConfigError(
            f"expected a positive integer or a sequence of them as batch_size, got {batch_size!r}"
        )
    return torch.Size(sizes)


def check_num_loc(num_loc: int) -> int:
    """`num_loc` if it is a positive integer."""
    return check_count("num_loc", num_loc)


def check_count(name: str, value: int, least: int = 1, most: int | None = None) -> int:
    """`value` if it is an integer within the limits, both included."""
    if not _is_integer(value) or value < least or (most is not None and value > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(f"expected {name} to be an integer {limits}, got {value!r}")
    return value


def check_interval(name: str, low: float, high: float) -> None:
    """Raises unless `low < high`."""
    if not low < high:
        raise ConfigError(f"expected min_{name} < max_{name}, got {low!r} and {high!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
