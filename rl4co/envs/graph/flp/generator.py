"""Instances of the facility location problem."""

from __future__ import annotations

import math

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.gains import euclidean_costs
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import Generator, check_count, check_interval, check_num_loc
from rl4co.envs.graph._parts import default_choice
from rl4co.envs.samplers import DistributionLike, Sampler


class FLPGenerator(Generator):
    """Locations drawn from one distribution.

    Args:
        num_loc: Number of locations.
        min_loc: Smallest coordinate.
        max_loc: Largest coordinate; named distributions are clipped to `[min_loc, max_loc]`.
        loc_distribution: Distribution of the coordinates, see
            :func:`~rl4co.envs.distributions.get_sampler`.
        to_choose: Number of facilities; None: 10, or half of the locations where these are few.
        loc_sampler: Ready-made sampler instead of `loc_distribution`.
        loc_kwargs: Options of the distribution, e.g. `loc_mean`, `loc_std` or `n_cluster`.

    Returns:
        `locs [*B, num_loc, 2]`, `orig_distances [*B, num_loc, num_loc]` between them,
        `to_choose [*B]` (int64), and the state before the first step: `distances [*B, num_loc]`
        (the diagonal of the square) and `chosen [*B, num_loc]` (all False).
    """

    def __init__(
        self,
        num_loc: int = 100,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        to_choose: int | None = None,
        loc_sampler: Sampler | Distribution | None = None,
        **loc_kwargs: Any,
    ) -> None:
        self.num_loc = check_num_loc(num_loc)
        check_interval("loc", min_loc, max_loc)
        self.min_loc, self.max_loc = min_loc, max_loc
        self.to_choose = check_count("to_choose", default_choice(to_choose, num_loc), most=num_loc)
        loc = SamplerSpec(loc_distribution, min_loc, max_loc, clip=True, sampler=loc_sampler)
        self.loc_sampler = self.build_samplers(loc_kwargs, loc=loc)["loc"]

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.loc_sampler.sample(torch.Size((*batch_size, self.num_loc, 2)), rng)
        diagonal = math.sqrt(2.0) * (self.max_loc - self.min_loc)
        instance = {
            "locs": locs,
            "orig_distances": euclidean_costs(locs),
            "distances": torch.full_like(locs[..., 0], diagonal),
            "chosen": torch.zeros_like(locs[..., 0], dtype=torch.bool),
            "to_choose": torch.full(
                batch_size, self.to_choose, dtype=torch.int64, device=locs.device
            ),
        }
        return TensorDict(instance, batch_size=batch_size)
