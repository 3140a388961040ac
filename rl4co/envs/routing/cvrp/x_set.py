"""Instances like those of the X set of CVRPLIB.

Paper: Uchoa et al., 2017, https://doi.org/10.1016/j.ejor.2016.08.012.
"""

from __future__ import annotations

import math

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.envs.generator import Generator, check_num_loc
from rl4co.envs.point_patterns import rand, randint

#: Seeds of a clustered instance: from 3 to 8.
_FEWEST_SEEDS, _MOST_SEEDS = 3, 8
#: Mean of the exponential decay around a seed, as a share of the square's side (40 of 1000).
_DECAY = 0.04
#: Customers of a route on average: triangular with these limits and this mode.
_ROUTE_LENGTH = (3.0, 6.0, 25.0)
#: Demands of one range: unitary; small, large with much or little variation.
_RANGES = ((1, 1), (1, 10), (5, 10), (1, 100), (50, 100))
#: Share of small demands among "many small, few large" ones.
_SMALL_SHARE = (0.70, 0.95)


class CVRPXGenerator(Generator):
    """Each instance has a position of the depot, a layout, demands and a capacity of its own.

    Every instance draws, with equal probability, a depot in the centre, in the corner or anywhere;
    customers that are uniform, clustered, or half of them clustered; and demands of seven kinds:
    unitary, `[1, 10]`, `[5, 10]`, `[1, 100]`, `[50, 100]`, by quadrant, or many small and few
    large. The capacity is $\\lceil r \\bar d \\rceil$, with the mean demand $\\bar d$ and a
    triangular $r \\in [3, 25]$ with mode 6, the mean number of customers of a route.

    Coordinates are real numbers in the unit square, not integers up to 1000, and clustered
    customers that fall outside are mirrored at the border instead of drawn again.

    Args:
        num_loc: Number of customers (the depot comes on top).

    Returns:
        `locs [*B, num_loc, 2]`, `depot [*B, 2]`, `demand [*B, num_loc]`, `capacity [*B, 1]`.
    """

    def __init__(self, num_loc: int = 50) -> None:
        self.num_loc = check_num_loc(num_loc)

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        size = (*batch_size, self.num_loc)
        locs = _customers(size, rng)  # [*B, n, 2]
        demand = _demands(locs, rng)  # [*B, n]
        length = _triangular(rand((*batch_size, 1), rng), *_ROUTE_LENGTH)  # [*B, 1]
        capacity = (length * demand.mean(-1, keepdim=True)).ceil()
        capacity = torch.maximum(capacity, demand.amax(-1, keepdim=True))
        instance = {
            "locs": locs,
            "depot": _depots(batch_size, rng),
            "demand": demand / capacity,
            "capacity": capacity,
        }
        return TensorDict(instance, batch_size=batch_size)


def _depots(batch_size: tuple[int, ...], rng: torch.Generator | None) -> Tensor:
    """In the centre, in the corner or anywhere: `[*B, 2]`."""
    kind = randint(3, (*batch_size, 1), rng)  # [*B, 1]
    anywhere = rand((*batch_size, 2), rng)
    fixed = torch.where(kind == 0, 0.5, 0.0)
    return torch.where(kind == 2, anywhere, fixed)


def _customers(size: tuple[int, ...], rng: torch.Generator | None) -> Tensor:
    """Uniform, clustered, or half of them clustered: `[*B, n, 2]`."""
    batch, num_loc = size[:-1], size[-1]
    share = randint(3, (*batch, 1), rng) / 2  # [*B, 1]: none, half or all in clusters
    rank = torch.arange(num_loc, device=share.device) / num_loc  # [n]
    in_cluster = (rank < share).unsqueeze(-1)  # [*B, n, 1]
    seeds = rand((*batch, _MOST_SEEDS, 2), rng)
    num_seeds = _FEWEST_SEEDS + randint(_MOST_SEEDS - _FEWEST_SEEDS + 1, (*batch, 1), rng)
    chosen = (rand(size, rng) * num_seeds).long()  # [*B, n]
    center = torch.take_along_dim(seeds, chosen.unsqueeze(-1), dim=-2)  # [*B, n, 2]
    # A density that decays exponentially in the plane has a radius with a gamma distribution.
    radius = -_DECAY * (1.0 - rand((*size, 2), rng)).log().sum(-1)  # [*B, n]
    angle = 2 * math.pi * rand(size, rng)
    offset = radius.unsqueeze(-1) * torch.stack([angle.cos(), angle.sin()], -1)
    mirrored = 1.0 - (1.0 - (center + offset).abs()).abs()
    return torch.where(in_cluster, mirrored.clamp(0.0, 1.0), rand((*size, 2), rng))


def _demands(locs: Tensor, rng: torch.Generator | None) -> Tensor:
    """Integer demands of seven kinds: `[*B, n, 2]` → `[*B, n]`."""
    size = locs.shape[:-1]
    uniform = [_integers(low, high, size, rng) for low, high in _RANGES]
    in_odd_quadrant = (locs[..., 0] < 0.5) == (locs[..., 1] < 0.5)
    by_quadrant = torch.where(
        in_odd_quadrant, _integers(51, 100, size, rng), _integers(1, 50, size, rng)
    )
    low, high = _SMALL_SHARE
    small_share = low + (high - low) * rand((*size[:-1], 1), rng)
    few_large = torch.where(
        rand(size, rng) < small_share, _integers(1, 10, size, rng), _integers(50, 100, size, rng)
    )
    kinds = torch.stack([*uniform, by_quadrant, few_large])  # [7, *B, n]
    kind = randint(len(kinds), (1, *size[:-1], 1), rng)
    return torch.take_along_dim(kinds, kind, dim=0).squeeze(0)


def _integers(low: int, high: int, size: tuple[int, ...], rng: torch.Generator | None) -> Tensor:
    """Integers in `[low, high]`, as floats."""
    return (low + randint(high - low + 1, size, rng)).float()


def _triangular(uniform: Tensor, low: float, mode: float, high: float) -> Tensor:
    """Triangular numbers from uniform ones, by the inverse of the distribution function."""
    span, rise, fall = high - low, mode - low, high - mode
    return torch.where(
        uniform < rise / span,
        low + (uniform * span * rise).sqrt(),
        high - ((1.0 - uniform) * span * fall).sqrt(),
    )
