"""`RoutingGenerator`: what generators of problems with nodes in a square share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch

from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import UnknownNameError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import Generator, check_interval, check_num_loc, sample_locs_and_depot
from rl4co.envs.samplers import DistributionLike, Sampler

InitSolType = Literal["random", "greedy"]


class RoutingGenerator(Generator):
    """Base class of generators whose nodes lie in the square `[min_loc, max_loc]²`.

    A subclass calls this constructor, then :meth:`set_samplers`. Its own constructor has, where
    they apply, the arguments

    - `min_loc`, `max_loc`: smallest and largest coordinate; named distributions are clipped to
      them;
    - `loc_distribution`: distribution of the coordinates, see
      :func:`~rl4co.envs.distributions.get_sampler`;
    - `depot_distribution`: that of the depot's coordinates; None draws the depot together with the
      other nodes;
    - `loc_sampler`, `depot_sampler`: ready-made samplers instead of distributions;
    - `**kwargs`: options of the distributions, such as `loc_mean`, `n_cluster` or `demand_rate`.

    Args:
        num_loc: Number of nodes that are drawn, usually without the depot.
        min_loc: Smallest coordinate.
        max_loc: Largest coordinate.
    """

    loc_sampler: Sampler
    depot_sampler: Sampler | None

    def __init__(self, num_loc: int, min_loc: float, max_loc: float) -> None:
        self.num_loc = check_num_loc(num_loc)
        check_interval("loc", min_loc, max_loc)
        self.min_loc, self.max_loc = min_loc, max_loc

    def location_spec(
        self, distribution: DistributionLike | None, sampler: Sampler | Distribution | None
    ) -> SamplerSpec:
        """Description of a sampler of coordinates; `sampler` replaces the distribution."""
        # No distribution is valid only beside a sampler; `build_samplers` checks it.
        chosen: Any = distribution
        return SamplerSpec(chosen, self.min_loc, self.max_loc, clip=True, sampler=sampler)

    def depot_spec(
        self, distribution: DistributionLike | None, sampler: Sampler | Distribution | None
    ) -> SamplerSpec | None:
        """Description of the depot's sampler; None if it is drawn together with the nodes."""
        if distribution is None and sampler is None:
            return None
        return self.location_spec(distribution, sampler)

    def set_samplers(self, options: Mapping[str, Any], **specs: SamplerSpec | None) -> None:
        """Sets the attribute `<name>_sampler` for each description; None sets None.

        Args:
            options: Options of the distributions, from `**kwargs` of the constructor.
            specs: Name of the variable → description of its sampler.
        """
        samplers = self.build_samplers(options, **specs)
        for name in specs:
            setattr(self, f"{name}_sampler", samplers.get(name))

    def sample_locs(self, batch_size: torch.Size, rng: torch.Generator | None) -> Tensor:
        """Coordinates of the nodes `[*B, num_loc, 2]`."""
        return self.loc_sampler.sample(torch.Size((*batch_size, self.num_loc, 2)), rng)

    def sample_locs_and_depot(
        self, batch_size: torch.Size, rng: torch.Generator | None
    ) -> tuple[Tensor, Tensor]:
        """Coordinates of the nodes `[*B, num_loc, 2]` and of the depot `[*B, 2]`."""
        return sample_locs_and_depot(
            batch_size, self.num_loc, self.loc_sampler, self.depot_sampler, rng
        )


def check_init_sol_type(init_sol_type: InitSolType) -> InitSolType:
    """Raises unless `init_sol_type` names a type of initial solution; returns it."""
    if init_sol_type not in get_args(InitSolType):
        raise UnknownNameError("initial solution type", init_sol_type, get_args(InitSolType))
    return init_sol_type
