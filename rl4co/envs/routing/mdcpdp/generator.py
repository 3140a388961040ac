"""Instances of the multi-depot capacitated pickup and delivery problem."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch

from tensordict import TensorDict
from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import check_count
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.routing.pdp.generator import check_even_num_loc
from rl4co.envs.samplers import DistributionLike, Sampler

DepotMode = Literal["multiple", "single"]


class MDCPDPGenerator(RoutingGenerator):
    """Pickups, their deliveries, and depots with one vehicle each.

    The first half of `locs` are pickups; the delivery of pickup j is `locs[j + num_loc / 2]`.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of pickups and deliveries together, an even number (depots come on top).
        num_agents: Number of vehicles k, each with its depot.
        depot_mode: `multiple` draws a location for each depot, `single` one location for all.
        min_capacity: Fewest orders that a vehicle carries at a time, an integer.
        max_capacity: Most orders that a vehicle carries at a time (included).
        min_lateness_weight: Smallest weight of lateness in the objective.
        max_lateness_weight: Largest weight; the default 1, 1 counts lateness only.
        lateness_weight_distribution: Distribution of the weights.
        lateness_weight_sampler: Ready-made sampler instead of `lateness_weight_distribution`.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, k, 2]`, `capacity [*B, k]` (int64),
        `lateness_weight [*B, 1]`.
    """

    depot_sampler: Sampler
    lateness_weight_sampler: Sampler

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        num_agents: int = 5,
        depot_mode: DepotMode = "multiple",
        depot_distribution: DistributionLike = "uniform",
        min_capacity: int = 3,
        max_capacity: int = 3,
        min_lateness_weight: float = 1.0,
        max_lateness_weight: float = 1.0,
        lateness_weight_distribution: DistributionLike = "uniform",
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        lateness_weight_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(check_even_num_loc(num_loc), min_loc, max_loc)
        if depot_mode not in get_args(DepotMode):
            raise UnknownNameError("depot_mode", depot_mode, get_args(DepotMode))
        self.num_agents, self.depot_mode = num_agents, depot_mode
        self.min_capacity, self.max_capacity = min_capacity, max_capacity
        self.min_lateness_weight = min_lateness_weight
        self.max_lateness_weight = max_lateness_weight
        self._check_vehicles()
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.location_spec(depot_distribution, depot_sampler),
            lateness_weight=SamplerSpec(
                lateness_weight_distribution,
                min_lateness_weight,
                max_lateness_weight,
                clip=True,
                sampler=lateness_weight_sampler,
            ),
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.sample_locs(batch_size, rng)
        weight = self.lateness_weight_sampler.sample(torch.Size((*batch_size, 1)), rng)
        capacity = torch.randint(
            self.min_capacity,
            self.max_capacity + 1,
            (*batch_size, self.num_agents),
            generator=rng,
            device=locs.device,
        )
        instance = {
            "locs": locs,
            "depot": self._sample_depots(batch_size, rng),
            "capacity": capacity,
            "lateness_weight": weight,
        }
        return TensorDict(instance, batch_size=batch_size)

    def _sample_depots(self, batch_size: torch.Size, rng: torch.Generator | None) -> Tensor:
        """`[*B, k, 2]`."""
        if self.depot_mode == "multiple":
            return self.depot_sampler.sample(torch.Size((*batch_size, self.num_agents, 2)), rng)
        location = self.depot_sampler.sample(torch.Size((*batch_size, 1, 2)), rng)  # [*B, 1, 2]
        return location.expand(*batch_size, self.num_agents, 2).contiguous()

    def _check_vehicles(self) -> None:
        check_count("num_agents", self.num_agents)
        check_count("min_capacity", self.min_capacity)
        check_count("max_capacity", self.max_capacity, least=self.min_capacity)
        low, high = self.min_lateness_weight, self.max_lateness_weight
        if not 0.0 <= low <= high <= 1.0:
            raise ConfigError(
                "expected 0 <= min_lateness_weight <= max_lateness_weight <= 1, "
                f"got {low!r} and {high!r}"
            )
