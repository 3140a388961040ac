"""Instances of the asymmetric travelling salesman problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import Generator, check_interval, check_num_loc
from rl4co.envs.samplers import DistributionLike, Sampler


class ATSPGenerator(Generator):
    """Random cost matrices that obey the triangle inequality.

    Every arc gets an independent random cost, which is then replaced by the cost of the cheapest
    path between its ends (Kwon et al., 2021). One instance takes O(n²) memory.

    Paper: https://arxiv.org/abs/2106.11113

    Args:
        num_loc: Number of nodes.
        min_dist: Smallest cost of an arc before the shortest paths are taken.
        max_dist: Largest cost of an arc.
        dist_distribution: Distribution of the costs on the unit interval, which is stretched to
            `[min_dist, max_dist]` afterwards; see :func:`~rl4co.envs.distributions.get_sampler`.
        tmat_class: Whether to impose the triangle inequality; otherwise arcs keep the costs drawn.
        dist_sampler: Ready-made sampler instead of `dist_distribution`.
        dist_kwargs: Options of the distribution, e.g. `dist_alpha` and `dist_beta`.

    Returns:
        `cost_matrix [*B, num_loc, num_loc]`, from row to column, with a diagonal of zeros.
    """

    def __init__(
        self,
        num_loc: int = 10,
        min_dist: float = 0.0,
        max_dist: float = 1.0,
        dist_distribution: DistributionLike = "uniform",
        tmat_class: bool = True,
        dist_sampler: Sampler | Distribution | None = None,
        **dist_kwargs: Any,
    ) -> None:
        self.num_loc = check_num_loc(num_loc)
        check_interval("dist", min_dist, max_dist)
        if min_dist < 0:
            raise ConfigError(
                f"expected min_dist >= 0, got {min_dist!r}; "
                "negative costs leave no shortest path between two nodes"
            )
        self.min_dist, self.max_dist = min_dist, max_dist
        self.tmat_class = tmat_class
        dist = SamplerSpec(dist_distribution, clip=True, sampler=dist_sampler)
        self.dist_sampler = self.build_samplers(dist_kwargs, dist=dist)["dist"]

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        size = torch.Size((*batch_size, self.num_loc, self.num_loc))
        costs = self.min_dist + (self.max_dist - self.min_dist) * self.dist_sampler.sample(
            size, rng
        )
        diagonal = torch.eye(self.num_loc, dtype=torch.bool, device=costs.device)
        costs = torch.where(diagonal, torch.zeros_like(costs), costs)
        if self.tmat_class:
            costs = cheapest_paths(costs)
        return TensorDict({"cost_matrix": costs}, batch_size=batch_size)


def cheapest_paths(costs: Tensor) -> Tensor:
    """Cost of the cheapest path between all pairs of nodes (Floyd and Warshall).

    $$d_{ij} \\leftarrow \\min(d_{ij}, d_{ik} + d_{kj}), \\qquad k = 1, \\dots, N$$

    The result obeys the triangle inequality. Each round needs one more matrix, so memory stays
    quadratic in N.

    Args:
        costs: Non-negative, with a diagonal of zeros.

    Shapes:
        `[*B, N, N]` → `[*B, N, N]`
    """
    for k in range(costs.shape[-1]):
        through_k = costs[..., :, k, None] + costs[..., None, k, :]  # [*B, N, N]
        costs = torch.minimum(costs, through_k)
    return costs
