"""Instances of the pickup and delivery problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.envs.generator import check_num_loc
from rl4co.envs.routing._generator import (
    InitSolType,
    RoutingGenerator,
    check_init_sol_type,
)
from rl4co.envs.samplers import DistributionLike, Sampler


class PDPGenerator(RoutingGenerator):
    """Pickups, their deliveries, and a depot.

    The first half of `locs` are pickups; the delivery of pickup j is `locs[j + num_loc / 2]`.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of pickups and deliveries together, an even number (the depot comes on top).
        init_sol_type: How improvement methods start: from a random or a nearest-neighbour tour.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        init_sol_type: InitSolType = "random",
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = None,
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(check_even_num_loc(num_loc), min_loc, max_loc)
        self.init_sol_type = check_init_sol_type(init_sol_type)
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.depot_spec(depot_distribution, depot_sampler),
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs, depot = self.sample_locs_and_depot(batch_size, rng)
        return TensorDict({"locs": locs, "depot": depot}, batch_size=batch_size)


def check_even_num_loc(num_loc: int) -> int:
    """`num_loc` if it is a positive even integer: half pickups, half deliveries."""
    if check_num_loc(num_loc) % 2:
        raise ConfigError(
            f"expected an even num_loc, half pickups and half deliveries, got {num_loc}; "
            f"use {num_loc + 1}"
        )
    return num_loc
