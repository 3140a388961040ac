"""Instances of the multiple travelling salesman problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch.distributions import Distribution

from rl4co.envs.generator import check_count
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.samplers import DistributionLike, Sampler


class MTSPGenerator(RoutingGenerator):
    """Nodes drawn from one distribution, the first of which is the depot, and a number of agents.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of nodes, the depot included; at least 2.
        min_num_agents: Smallest number of agents.
        max_num_agents: Largest number of agents, included; drawn for each instance.

    Returns:
        `locs [*B, num_loc, 2]`, `num_agents [*B]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        min_num_agents: int = 5,
        max_num_agents: int = 5,
        loc_sampler: Sampler | Distribution | None = None,
        **loc_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        check_count("num_loc", num_loc, least=2)  # the depot and a customer
        check_count("min_num_agents", min_num_agents)
        check_count("max_num_agents", max_num_agents, least=min_num_agents)
        self.min_num_agents, self.max_num_agents = min_num_agents, max_num_agents
        self.set_samplers(loc_kwargs, loc=self.location_spec(loc_distribution, loc_sampler))

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.sample_locs(batch_size, rng)
        num_agents = torch.randint(
            self.min_num_agents,
            self.max_num_agents + 1,
            batch_size,
            generator=rng,
            device=None if rng is None else rng.device,
        )
        return TensorDict({"locs": locs, "num_agents": num_agents}, batch_size=batch_size)
