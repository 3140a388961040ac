"""Instances of the capacitated vehicle routing problem with time windows."""

from __future__ import annotations

import math

from typing import Any

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError
from rl4co.core.ops import get_distance
from rl4co.envs.routing._parts import pad_depot
from rl4co.envs.routing.cvrp.generator import CVRPGenerator
from rl4co.envs.samplers import DistributionLike, UniformSampler


class CVRPTWGenerator(CVRPGenerator):
    """Customers of the CVRP with a service time and a window in which the service must begin.

    Both ends of a window are drawn uniformly between the arrival of a vehicle that comes directly
    from the depot and the latest time to return before the depot closes. They are rounded down to
    integers; a window is at least one unit long.

    Args:
        num_loc: Number of customers (the depot comes on top).
        min_loc: Smallest coordinate.
        max_loc: Largest coordinate.
        loc_distribution: Distribution of the customers' coordinates.
        depot_distribution: Distribution of the depot's coordinates; None draws the depot together
            with the customers.
        max_time: Time at which the depot closes; it opens at 0.
        duration: Service time of every customer.
        scale: Whether coordinates and times are divided by `max_time`.
        cvrp_options: See :class:`CVRPGenerator`.

    Returns:
        `locs [*B, n, 2]`, `depot [*B, 2]`, `demand [*B, n]`, `capacity [*B, 1]`, and with the depot
        in front `durations [*B, n + 1]` and `time_windows [*B, n + 1, 2]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 150.0,
        loc_distribution: DistributionLike = "uniform",
        depot_distribution: DistributionLike | None = "uniform",
        *,
        max_time: float = 480.0,
        duration: float = 0.0,
        scale: bool = False,
        **cvrp_options: Any,
    ) -> None:
        super().__init__(
            num_loc, min_loc, max_loc, loc_distribution, depot_distribution, **cvrp_options
        )
        self.max_time, self.duration, self.scale = max_time, duration, scale
        check_at_least(0, duration=duration)
        # A round trip along the diagonal, and a window one unit long between integers.
        needed = 2 * (math.sqrt(2) * (max_loc - min_loc) + 1) + duration
        if max_time < needed:
            raise ConfigError(
                f"expected max_time >= {needed:.1f}, the time to serve a customer at the far end "
                f"of the square, got {max_time!r}; raise max_time or lower max_loc or duration"
            )

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        td = super()._generate(batch_size, rng)
        distance = get_distance(td["locs"], td["depot"].unsqueeze(-2))  # [*B, n]
        windows = self._draw_windows(distance, rng)  # [*B, n, 2]
        depot = torch.zeros_like(windows[..., :1, :])  # [*B, 1, 2]
        depot[..., 1] = self.max_time
        td["durations"] = pad_depot(torch.full_like(distance, float(self.duration)))
        td["time_windows"] = torch.cat([depot, windows], -2)  # [*B, n + 1, 2]
        if self.scale:
            for key in ("locs", "depot", "durations", "time_windows"):
                td[key] = td[key] / self.max_time
        return td

    def _draw_windows(self, distance: Tensor, rng: torch.Generator | None) -> Tensor:
        """Windows of customers at a distance from the depot: `[*B, n]` → `[*B, n, 2]`."""
        latest = self.max_time - distance - self.duration  # [*B, n]
        unit = UniformSampler().sample(torch.Size((2, *distance.shape)), rng)
        ends = (distance + (latest - distance) * unit).floor()  # [2, *B, n]
        begin, end = ends.amin(0), ends.amax(0)
        # At least one unit long; a window rounded down to before the first arrival, and one at an
        # integer distance, is extended at its end.
        begin = torch.minimum(begin, torch.maximum(end - 1, distance.floor()))
        end = torch.where(begin == end, end + 1, end)
        return torch.stack([begin, end], -1)
