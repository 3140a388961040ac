"""Instances of the prize collecting travelling salesman problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.samplers import DistributionLike, Sampler, UniformSampler

#: Estimated length of a tour by number of customers (Kool et al., 2019).
TOUR_LENGTHS: dict[int, float] = {20: 2.0, 50: 3.0, 100: 4.0}


class PCTSPGenerator(RoutingGenerator):
    """Customers with prizes and penalties, and a depot.

    As in Kool et al. (2019): prizes are uniform on `[0, 4 / n]`, so that about half of the
    customers make up the required prize of 1; penalties are uniform on `[0, 3 L / n]` with an
    estimate L of the tour length, so that both parts of the cost matter. In the stochastic
    problem, a visit earns between 0 and twice the expected prize, uniformly.

    If all prizes together are less than the required one (a quarter of the instances with one
    customer, 1 in 20 000 with twenty), they are scaled up to it, so that every instance is
    feasible.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of customers (the depot comes on top).
        penalty_factor: Largest penalty in multiples of L / n.
        prize_required: Prize that a tour must collect.
        max_penalty: Tour length L by which penalties are scaled; None uses a default, see
            :func:`get_default_tour_length`.
        penalty_distribution: Distribution of the penalties, between 0 and the largest one.
        prize_distribution: Distribution of the expected prizes, between 0 and 4 / n.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`, `penalty [*B, num_loc]`,
        `deterministic_prize [*B, num_loc]`, `stochastic_prize [*B, num_loc]`,
        `prize_required [*B]`.
    """

    penalty_sampler: Sampler
    prize_sampler: Sampler

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = None,
        penalty_factor: float = 3.0,
        prize_required: float = 1.0,
        max_penalty: float | None = None,
        penalty_distribution: DistributionLike = "uniform",
        prize_distribution: DistributionLike = "uniform",
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        self.penalty_factor, self.prize_required = penalty_factor, prize_required
        length = get_default_tour_length(num_loc) if max_penalty is None else max_penalty
        self.max_penalty = length * penalty_factor / num_loc
        self.max_prize = 4.0 / num_loc
        if self.max_penalty < 0:
            raise ConfigError(
                f"expected penalty_factor and max_penalty >= 0, got {penalty_factor!r} and "
                f"{max_penalty!r}"
            )
        if prize_required < 0 or (prize_distribution == "uniform" and prize_required > 4):
            raise ConfigError(
                "expected prize_required between 0 and 4, the most that all prizes together can "
                f"be, got {prize_required!r}; give a prize_distribution of larger ones"
            )
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.depot_spec(depot_distribution, depot_sampler),
            penalty=SamplerSpec(penalty_distribution, 0.0, self.max_penalty, clip=True),
            prize=SamplerSpec(prize_distribution, 0.0, self.max_prize, clip=True),
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs, depot = self.sample_locs_and_depot(batch_size, rng)
        size = locs.shape[:-1]
        penalty = self.penalty_sampler.sample(size, rng)
        expected = self.prize_sampler.sample(size, rng)
        total = expected.sum(-1, keepdim=True).clamp_min(1e-12)  # [*B, 1]
        expected = expected * (self.prize_required / total).clamp_min(1.0)
        factor = UniformSampler(high=2.0).sample(size, rng)
        required = torch.full(batch_size, float(self.prize_required), device=locs.device)
        instance = {
            "locs": locs,
            "depot": depot,
            "penalty": penalty,
            "deterministic_prize": expected,
            "stochastic_prize": factor * expected,
            "prize_required": required,
        }
        return TensorDict(instance, batch_size=batch_size)


def get_default_tour_length(num_loc: int) -> float:
    """Estimated length of a tour of `num_loc` customers: that of the nearest size in the table."""
    return TOUR_LENGTHS[min(TOUR_LENGTHS, key=lambda size: abs(size - num_loc))]
