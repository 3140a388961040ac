"""Instances of the orienteering problem."""

from __future__ import annotations

from typing import Any, Literal

import torch

from tensordict import TensorDict
from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import get_distance
from rl4co.envs.distributions import SamplerSpec
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.samplers import DistributionLike, Sampler

#: Longest tour by number of customers (Kool et al., 2019): about half of an optimal tour of all.
MAX_LENGTHS: dict[int, float] = {20: 2.0, 50: 3.0, 100: 4.0}

PrizeType = Literal["const", "unif", "dist"]
PRIZE_TYPES: tuple[PrizeType, ...] = ("const", "unif", "dist")


class OPGenerator(RoutingGenerator):
    """Customers with prizes, a depot, and the length that a tour may have.

    Prizes are those of Fischetti et al. (1998): `const`, all 1; `unif`, uniform on 0.01, 0.02, ...,
    1; `dist`, the larger the farther from the depot, `(1 + floor(99 * d / max d)) / 100`.

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of customers (the depot comes on top).
        min_prize: Lower end of the prizes of a `prize_distribution`.
        max_prize: Upper end of the prizes of a `prize_distribution`.
        prize_distribution: Distribution of the prizes; replaces `prize_type`.
        prize_type: const, unif or dist.
        max_length: Length that a tour may have: one number, or a tensor `[*B]` of one for each
            instance of a batch (a single instance gets the first); None uses a default, see
            :func:`get_default_max_length`.
        prize_sampler: Ready-made sampler instead of `prize_distribution`.

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`, `prize [*B, num_loc]`, `max_length [*B]`.
    """

    prize_sampler: Sampler | None

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = None,
        min_prize: float = 0.0,
        max_prize: float = 1.0,
        prize_distribution: DistributionLike | None = None,
        prize_type: PrizeType = "dist",
        max_length: float | Tensor | None = None,
        loc_sampler: Sampler | Distribution | None = None,
        depot_sampler: Sampler | Distribution | None = None,
        prize_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        if prize_type not in PRIZE_TYPES:
            raise UnknownNameError("prize_type", prize_type, PRIZE_TYPES)
        self.min_prize, self.max_prize = min_prize, max_prize
        self.prize_type = prize_type
        self.max_length = get_default_max_length(num_loc) if max_length is None else max_length
        if bool((torch.as_tensor(self.max_length) < 0).any()):
            raise ConfigError(f"expected max_length >= 0, got {max_length!r}")
        prizes = None
        if prize_distribution is not None or prize_sampler is not None:
            distribution = "uniform" if prize_distribution is None else prize_distribution
            prizes = SamplerSpec(
                distribution, min_prize, max_prize, clip=True, sampler=prize_sampler
            )
        self.set_samplers(
            sampler_kwargs,
            loc=self.location_spec(loc_distribution, loc_sampler),
            depot=self.depot_spec(depot_distribution, depot_sampler),
            prize=prizes,
        )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs, depot = self.sample_locs_and_depot(batch_size, rng)
        instance = {
            "locs": locs,
            "depot": depot,
            "prize": self._sample_prizes(locs, depot, rng),
            "max_length": self._max_lengths(batch_size, locs),
        }
        return TensorDict(instance, batch_size=batch_size)

    def _sample_prizes(self, locs: Tensor, depot: Tensor, rng: torch.Generator | None) -> Tensor:
        """Prizes `[*B, n]`."""
        size = locs.shape[:-1]
        if self.prize_sampler is not None:
            return self.prize_sampler.sample(size, rng)
        if self.prize_type == "const":
            return torch.ones(size, device=locs.device)
        if self.prize_type == "unif":
            hundredths = torch.randint(1, 101, size, generator=rng, device=locs.device)
            return hundredths.float() / 100
        distance = get_distance(depot.unsqueeze(-2), locs)  # [*B, n]
        farthest = distance.amax(-1, keepdim=True)  # [*B, 1]
        # If all customers are at the depot, every prize is the smallest.
        share = distance / torch.where(farthest > 0, farthest, torch.ones_like(farthest))
        return (1 + (share * 99).floor()) / 100

    def _max_lengths(self, batch_size: torch.Size, like: Tensor) -> Tensor:
        """Longest tours `[*B]`."""
        if not isinstance(self.max_length, Tensor):
            return torch.full(batch_size, float(self.max_length), device=like.device)
        lengths = self.max_length.to(like)
        if not batch_size:
            lengths = lengths.flatten()[0]
        if lengths.dim() > 0 and lengths.shape != batch_size:
            raise ConfigError(
                f"expected one max_length, or one for each of {list(batch_size)} instances, got "
                f"{list(lengths.shape)}; generate batches of that size"
            )
        return lengths.expand(batch_size).clone()


def get_default_max_length(num_loc: int) -> float:
    """Length that a tour of `num_loc` customers may have: that of the nearest size in the table."""
    return MAX_LENGTHS[min(MAX_LENGTHS, key=lambda size: abs(size - num_loc))]
