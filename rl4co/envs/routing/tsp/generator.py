"""Instances of the travelling salesman problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.envs.routing._generator import (
    InitSolType,
    RoutingGenerator,
    check_init_sol_type,
)
from rl4co.envs.samplers import DistributionLike, Sampler


class TSPGenerator(RoutingGenerator):
    """Cities drawn from one distribution.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of cities.
        init_sol_type: How improvement methods start: from a random or a nearest-neighbour tour.

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
        super().__init__(num_loc, min_loc, max_loc)
        self.init_sol_type = check_init_sol_type(init_sol_type)
        self.set_samplers(loc_kwargs, loc=self.location_spec(loc_distribution, loc_sampler))

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.sample_locs(batch_size, rng)
        return TensorDict({"locs": locs}, batch_size=batch_size)
