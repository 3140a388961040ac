"""Instances of the capacitated vehicle routing problem."""

from __future__ import annotations

import math

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import check_count, check_interval
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.sampler_adapters import IntegerSampler
from rl4co.envs.samplers import ConstantSampler, DistributionLike, Sampler

#: Vehicle capacity by number of customers: Kool et al. (2019), Hottung et al. (2022), Kim et al.
#: (2023).
CAPACITIES: dict[int, float] = {
    10: 20.0,
    15: 25.0,
    20: 30.0,
    30: 33.0,
    40: 37.0,
    50: 40.0,
    60: 43.0,
    75: 45.0,
    100: 50.0,
    125: 55.0,
    150: 60.0,
    200: 70.0,
    500: 100.0,
    1000: 150.0,
}


class CVRPGenerator(RoutingGenerator):
    """Customers with integer demands, a depot, and vehicles of one capacity.

    Demands are stored as fractions of the capacity, `demand = integer / capacity`, together with
    the capacity itself, so that an instance is complete without its generator.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of customers (the depot comes on top).
        min_demand: Smallest demand, an integer.
        max_demand: Upper end of the demands, excluded: the default 1, 10 gives 1 ... 9.
        demand_distribution: Distribution of the demands before they are rounded down; named ones
            are clipped to `[min_demand, max_demand - 1]`. A number is the demand of all customers.
        vehicle_capacity: Load of a vehicle in multiples of `capacity`.
        capacity: Units a vehicle carries; None uses a default, see :func:`get_default_capacity`.
        demand_sampler: Ready-made sampler instead of `demand_distribution`.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`, `demand [*B, num_loc]`, `capacity [*B, 1]`.
    """

    demand_sampler: Sampler

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = None,
        min_demand: int = 1,
        max_demand: int = 10,
        demand_distribution: DistributionLike = "uniform",
        vehicle_capacity: float = 1.0,
        capacity: float | None = None,
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        demand_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        check_interval("demand", min_demand, max_demand)
        self.min_demand, self.max_demand = min_demand, max_demand
        self.vehicle_capacity = vehicle_capacity
        self.capacity = get_default_capacity(num_loc) if capacity is None else capacity
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.depot_spec(depot_distribution, depot_sampler),
            demand=SamplerSpec(
                demand_distribution, min_demand, max_demand, integer=True, sampler=demand_sampler
            ),
        )
        self._check_demands()

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs, depot = self.sample_locs_and_depot(batch_size, rng)
        demand = self.demand_sampler.sample(torch.Size((*batch_size, self.num_loc)), rng)
        units = float(self.capacity * self.vehicle_capacity)
        capacity = torch.full((*batch_size, 1), units, device=demand.device)
        instance = {"locs": locs, "depot": depot, "demand": demand / units, "capacity": capacity}
        return TensorDict(instance, batch_size=batch_size)

    def _check_demands(self) -> None:
        check_count("min_demand", self.min_demand, least=0)
        check_count("max_demand", self.max_demand)
        factors = {"capacity": self.capacity, "vehicle_capacity": self.vehicle_capacity}
        for name, value in factors.items():
            if not 0 < value < float("inf"):
                raise ConfigError(f"expected {name} > 0, got {value!r}")
        largest = self._largest_demand()
        if largest is not None and not 0 <= largest <= self.capacity * self.vehicle_capacity:
            raise ConfigError(
                f"expected demands between 0 and the capacity of a vehicle, "
                f"{self.capacity * self.vehicle_capacity:g}, got demands up to {largest:g}; "
                "lower max_demand or raise capacity"
            )

    def _largest_demand(self) -> float | None:
        """Largest demand that can be drawn; None if a custom sampler decides."""
        if not isinstance(self.demand_sampler, IntegerSampler):
            return None
        if isinstance(self.demand_sampler.sampler, ConstantSampler):
            return self.demand_sampler.sampler.value
        return self.demand_sampler.high if math.isfinite(self.demand_sampler.high) else None


def get_default_capacity(num_loc: int) -> float:
    """Capacity of a vehicle for `num_loc` customers.

    Sizes in :data:`CAPACITIES` have the value of the literature. All others follow
    :func:`get_vehicle_capacity`, the formula of the multi-task literature, rather than the nearest
    size in the table.
    """
    return CAPACITIES.get(num_loc, get_vehicle_capacity(num_loc))


def get_vehicle_capacity(num_loc: int) -> float:
    """Capacity by formula, as in the multi-task vehicle routing literature.

    30 up to 20 customers, `30 + n // 5` up to 1000 (Liu et al., 2024), and from there one unit more
    for every 33.3 customers (Ye et al., 2024: 260 at 2000, 350 at 5000, 500 at 10000).
    """
    if num_loc <= 20:
        return 30.0
    return 30.0 + min(num_loc, 1000) // 5 + max(num_loc - 1000, 0) // 33.3
