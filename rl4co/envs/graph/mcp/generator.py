"""Instances of the maximum coverage problem."""

from __future__ import annotations

from typing import Any

import torch

from tensordict import TensorDict
from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.generator import Generator, check_count
from rl4co.envs.graph._parts import default_choice
from rl4co.envs.point_patterns import device_of
from rl4co.envs.samplers import DistributionLike, Sampler


class MCPGenerator(Generator):
    """Sets of random items with random weights.

    Args:
        num_items: Number of items.
        num_sets: Number of sets.
        min_weight: Smallest weight of an item.
        max_weight: Largest weight; named distributions give whole numbers from `min_weight` to it.
        min_size: Fewest items drawn for a set.
        max_size: Most items of a set, which is the width of `membership`.
        n_sets_to_choose: Number of sets to choose; None: 10, or half of the sets where these are
            few.
        size_distribution: Distribution of the numbers of items, see
            :func:`~rl4co.envs.distributions.get_sampler`.
        weight_distribution: Distribution of the weights.
        size_sampler: Ready-made sampler instead of `size_distribution`; what it draws is rounded
            down, to at least 1 and at most `max_size`.
        weight_sampler: Ready-made sampler instead of `weight_distribution`; rounded down as well.
        replacement: Whether the items of a set are drawn with replacement and those that come again
            dropped, as in the published instances: sets are smaller then than what was drawn.
        kwargs: Options of the distributions, e.g. `weight_mean`, `weight_std`.

    Returns:
        `membership [*B, num_sets, max_size]`, items counted from 1, 0 is padding;
        `weights [*B, num_items]`; `n_sets_to_choose [*B, 1]`; all of them floats.
    """

    size_argument = "num_sets"

    def __init__(
        self,
        num_items: int = 200,
        num_sets: int = 100,
        min_weight: int = 1,
        max_weight: int = 10,
        min_size: int = 5,
        max_size: int = 15,
        n_sets_to_choose: int | None = None,
        size_distribution: DistributionLike = "uniform",
        weight_distribution: DistributionLike = "uniform",
        size_sampler: Sampler | Distribution | None = None,
        weight_sampler: Sampler | Distribution | None = None,
        replacement: bool = True,
        **kwargs: Any,
    ) -> None:
        self.num_items, self.num_sets = num_items, num_sets
        self.min_weight, self.max_weight = min_weight, max_weight
        self.min_size, self.max_size = min_size, max_size
        self.n_sets_to_choose = default_choice(n_sets_to_choose, num_sets)
        self.replacement = replacement
        self._check()
        samplers = self.build_samplers(
            kwargs,
            size=SamplerSpec(
                size_distribution, min_size, max_size + 1, integer=True, sampler=size_sampler
            ),
            weight=SamplerSpec(
                weight_distribution,
                min_weight,
                max_weight + 1,
                integer=True,
                sampler=weight_sampler,
            ),
        )
        self.size_sampler, self.weight_sampler = samplers["size"], samplers["weight"]

    def _check(self) -> None:
        """Raises unless the numbers fit together."""
        check_count("num_items", self.num_items)
        check_count("num_sets", self.num_sets)
        check_count("max_size", self.max_size, most=None if self.replacement else self.num_items)
        check_count("min_size", self.min_size, most=self.max_size)
        check_count("n_sets_to_choose", self.n_sets_to_choose, most=self.num_sets)
        if not 0 <= self.min_weight <= self.max_weight:
            raise ConfigError(
                "expected 0 <= min_weight <= max_weight, got "
                f"{self.min_weight!r} and {self.max_weight!r}"
            )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        sizes = self.size_sampler.sample(torch.Size((*batch_size, self.num_sets)), rng)
        sizes = sizes.clamp(1, self.max_size).unsqueeze(-1)  # [*B, sets, 1]
        places = torch.arange(self.max_size, device=sizes.device)
        items = self._draw_items(batch_size, rng).masked_fill(places >= sizes, 0)
        weights = self.weight_sampler.sample(torch.Size((*batch_size, self.num_items)), rng)
        chosen = torch.full((*batch_size, 1), float(self.n_sets_to_choose), device=sizes.device)
        instance = {"membership": items.float(), "weights": weights, "n_sets_to_choose": chosen}
        return TensorDict(instance, batch_size=batch_size)

    def _draw_items(self, batch_size: torch.Size, rng: torch.Generator | None) -> Tensor:
        """Items `[*B, sets, max_size]` from 1; 0 in place of one that is there already."""
        device, shape = device_of(rng), (*batch_size, self.num_sets)
        if not self.replacement:
            keys = torch.rand(*shape, self.num_items, generator=rng, device=device)
            return keys.topk(self.max_size, -1).indices + 1
        size = (*shape, self.max_size)
        items = torch.randint(1, self.num_items + 1, size, generator=rng, device=device)
        same = items.unsqueeze(-1) == items.unsqueeze(-2)  # [*B, sets, max_size, max_size]
        return items.masked_fill(same.tril(-1).any(-1), 0)
