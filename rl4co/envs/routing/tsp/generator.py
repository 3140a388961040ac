"""Instances of the travelling salesman problem."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.errors import UnknownNameError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import Generator, check_interval, check_num_loc
from rl4co.envs.samplers import DistributionLike, Sampler

InitSolType = Literal["random", "greedy"]


class TSPGenerator(Generator):
    """Cities drawn from one distribution.

    Args:
        num_loc: Number of cities.
        min_loc: Smallest coordinate.
        max_loc: Largest coordinate; named distributions are clipped to `[min_loc, max_loc]`.
        init_sol_type: How improvement methods start: from a random or a nearest-neighbour tour.
        loc_distribution: Distribution of the coordinates, see
            :func:`~rl4co.envs.distributions.get_sampler`.
        loc_sampler: Ready-made sampler instead of `loc_distribution`.
        loc_kwargs: Options of the distribution, e.g. `loc_mean`, `loc_std` or `n_cluster`.

    Returns:
        `locs [*B, num_loc, 2]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        init_sol_type: InitSolType = "random",
        loc_distribution: DistributionLike = "uniform",
        loc_sampler: Sampler | Distribution | None = None,
        **loc_kwargs: Any,
    ) -> None:
        self.num_loc = check_num_loc(num_loc)
        check_interval("loc", min_loc, max_loc)
        self.min_loc, self.max_loc = min_loc, max_loc
        if init_sol_type not in get_args(InitSolType):
            raise UnknownNameError("initial solution type", init_sol_type, get_args(InitSolType))
        self.init_sol_type = init_sol_type
        loc = SamplerSpec(loc_distribution, min_loc, max_loc, clip=True, sampler=loc_sampler)
        self.loc_sampler = self.build_samplers(loc_kwargs, loc=loc)["loc"]

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.loc_sampler.sample(torch.Size((*batch_size, self.num_loc, 2)), rng)
        return TensorDict({"locs": locs}, batch_size=batch_size)
