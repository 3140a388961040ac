"""Instances of the skill vehicle routing problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError
from rl4co.envs.generator import check_interval
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.samplers import DistributionLike, Sampler, UniformSampler


class SVRPGenerator(RoutingGenerator):
    """Technicians with skills, and customers that require a skill.

    The skills of technicians are uniform and sorted; required skills are uniform between 0 and the
    highest one.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of customers (the depot comes on top).
        min_skill: Smallest skill of a technician.
        max_skill: Largest skill of a technician.
        tech_costs: Cost of a unit of length for each technician, the least skilled first; their
            number is the number of technicians.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`, `techs [*B, t, 1]`, `skills [*B, num_loc, 1]`,
        `tech_costs [*B, t]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = None,
        min_skill: float = 1.0,
        max_skill: float = 10.0,
        tech_costs: Sequence[float] = (1, 2, 3),
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        check_interval("skill", min_skill, max_skill)
        check_at_least(0, min_skill=min_skill)
        self.min_skill, self.max_skill = min_skill, max_skill
        self.tech_costs = tuple(float(cost) for cost in tech_costs)
        if not self.tech_costs or min(self.tech_costs) < 0 or max(self.tech_costs) == 0:
            raise ConfigError(
                "expected tech_costs of one technician or more, none negative and not all 0, "
                f"got {tech_costs!r}"
            )
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.depot_spec(depot_distribution, depot_sampler),
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs, depot = self.sample_locs_and_depot(batch_size, rng)
        num_techs = len(self.tech_costs)
        technician = UniformSampler(low=self.min_skill, high=self.max_skill)
        techs = technician.sample(torch.Size((*batch_size, num_techs, 1)), rng).sort(-2).values
        share = UniformSampler().sample(torch.Size((*batch_size, self.num_loc, 1)), rng)
        costs = torch.tensor(self.tech_costs, device=techs.device)
        instance = {
            "locs": locs,
            "depot": depot,
            "techs": techs,
            "skills": share * techs[..., -1:, :],  # [*B, n, 1], at most the highest one
            "tech_costs": costs.expand(*batch_size, num_techs).clone(),  # [*B, t]
        }
        return TensorDict(instance, batch_size=batch_size)
