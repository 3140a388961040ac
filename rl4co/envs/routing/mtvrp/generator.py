"""Instances of the multi-task vehicle routing problem, several variants in one batch."""

from __future__ import annotations

import math

from pathlib import Path
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torch.distributions import Distribution

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.ops import get_distance
from rl4co.data.io import save_tensordict_to_npz
from rl4co.envs.routing._generator import RoutingGenerator
from rl4co.envs.routing._parts import pad_depot
from rl4co.envs.routing.cvrp.generator import get_vehicle_capacity
from rl4co.envs.routing.mtvrp.variants import (
    EXCLUSIVE_PRESETS,
    VARIANT_GENERATION_PRESETS,
    VARIANTS,
    draw_features,
    has_weight,
    variant_weights,
)
from rl4co.envs.samplers import DistributionLike, Sampler

__all__ = ["VARIANT_GENERATION_PRESETS", "MTVRPGenerator", "get_vehicle_capacity"]

#: Ranges of service times and of the lengths of time windows (Liu et al., 2024).
SERVICE_TIME = (0.15, 0.18)
WINDOW_LENGTH = (0.18, 0.2)


class MTVRPGenerator(RoutingGenerator):
    """Instances with all features, from which those not in their variant are then removed.

    The variant is drawn for each instance of a batch (Berto et al., 2024). Features that a variant
    does not have get a neutral value: closed routes, time windows [0, ∞) without service, a
    distance limit of ∞, linehauls in place of backhauls.

    Papers: Liu et al. (2024), https://arxiv.org/abs/2402.16891; Zhou et al. (2024),
    https://arxiv.org/abs/2405.01029; Berto et al. (2024), https://arxiv.org/abs/2406.15007

    Further arguments are explained at :class:`~rl4co.envs.routing._generator.RoutingGenerator`.

    Args:
        num_loc: Number of customers (the depot comes on top).
        capacity: Units a vehicle carries; None follows the formula of the paper, see
            :func:`get_vehicle_capacity`.
        min_demand: Smallest linehaul demand, an integer.
        max_demand: Upper end of the linehaul demands, excluded: the default 1, 10 gives 1 ... 9.
        min_backhaul: Smallest backhaul demand.
        max_backhaul: Upper end of the backhaul demands, excluded.
        scale_demand: Divide demands by the capacity, so that a vehicle carries 1.
        max_time: End of the depot's time window.
        backhaul_ratio: Probability that a customer is a backhaul.
        distance_limit: Longest route.
        speed: Distance per time.
        prob_open: Probability of open routes; None is the preset's.
        prob_time_window: Probability of time windows; None is the preset's.
        prob_limit: Probability of a distance limit; None is the preset's.
        prob_backhaul: Probability of backhauls; None is the preset's.
        variant_preset: `all`, `single_feat`, `single_feat_otw`, or one variant, such as `ovrpbtw`;
            None is `all`, in which each feature has probability 0.5.
        use_combinations: Whether features are independent of each other. Otherwise an instance has
            one at most, drawn with the probabilities as weights, or none, with weight 0.5.
        subsample: Remove features. Otherwise all instances have all of them (OVRPBLTW).
        backhaul_class: 1: all linehauls of a route come before its backhauls; 2: any order.
        sample_backhaul_class: Draw the class of each instance instead, 1 or 2 equally often.

    Returns:
        With N = num_loc + 1, depot first: `locs [*B, N, 2]`, `demand_linehaul`, `demand_backhaul`,
        `service_time [*B, N]`, `time_windows [*B, N, 2]`, and `vehicle_capacity`,
        `capacity_original`, `distance_limit`, `open_route`, `backhaul_class`, `speed [*B, 1]`.
    """

    def __init__(
        self,
        num_loc: int = 20,
        min_loc: float = 0.0,
        max_loc: float = 1.0,
        loc_distribution: DistributionLike = "uniform",
        capacity: float | None = None,
        min_demand: int = 1,
        max_demand: int = 10,
        min_backhaul: int = 1,
        max_backhaul: int = 10,
        scale_demand: bool = True,
        max_time: float = 4.6,
        backhaul_ratio: float = 0.2,
        distance_limit: float = 3.0,
        speed: float = 1.0,
        prob_open: float | None = None,
        prob_time_window: float | None = None,
        prob_limit: float | None = None,
        prob_backhaul: float | None = None,
        variant_preset: str | None = None,
        use_combinations: bool = True,
        subsample: bool = True,
        backhaul_class: int = 1,
        sample_backhaul_class: bool = False,
        loc_sampler: Sampler | Distribution | None = None,
        **sampler_kwargs: Any,
    ) -> None:
        super().__init__(num_loc, min_loc, max_loc)
        self.capacity = get_vehicle_capacity(num_loc) if capacity is None else capacity
        self.min_demand, self.max_demand = min_demand, max_demand
        self.min_backhaul, self.max_backhaul = min_backhaul, max_backhaul
        self.scale_demand, self.backhaul_ratio = scale_demand, backhaul_ratio
        self.max_time, self.distance_limit, self.speed = max_time, distance_limit, speed
        self.variant_preset, self.subsample = variant_preset, subsample
        self.backhaul_class, self.sample_backhaul_class = backhaul_class, sample_backhaul_class

        preset = "all" if variant_preset is None else variant_preset
        if preset not in VARIANT_GENERATION_PRESETS:
            raise UnknownNameError("variant preset", preset, VARIANT_GENERATION_PRESETS)
        probabilities = {
            "O": prob_open,
            "TW": prob_time_window,
            "L": prob_limit,
            "B": prob_backhaul,
        }
        overrides = {key: value for key, value in probabilities.items() if value is not None}
        self.variant_probs = {**VARIANT_GENERATION_PRESETS[preset], **overrides}
        self.use_combinations = use_combinations and preset not in EXCLUSIVE_PRESETS
        self._check_settings()
        self._weights = variant_weights(self.variant_probs, not self.use_combinations)

        self.set_samplers(sampler_kwargs, loc=self.location_spec(loc_distribution, loc_sampler))

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        locs = self.generate_locations(batch_size, self.num_loc, rng)
        linehaul, backhaul = self.generate_demands(batch_size, self.num_loc, rng)
        column = (*batch_size, 1)
        speed = self.generate_speed(column).to(locs.device)
        time_windows, service_time = self.generate_time_windows(locs, speed, rng)
        capacity = torch.full(column, float(self.capacity), device=locs.device)
        unit = capacity if self.scale_demand else torch.ones_like(capacity)
        instances = TensorDict(
            {
                "locs": locs,
                "demand_linehaul": pad_depot(linehaul) / unit,
                "demand_backhaul": pad_depot(backhaul) / unit,
                "backhaul_class": self.generate_backhaul_class(column, rng).to(locs.device),
                "distance_limit": self.generate_distance_limit(column, locs),
                "time_windows": time_windows,
                "service_time": service_time,
                "vehicle_capacity": capacity / unit,
                "capacity_original": capacity,
                "open_route": self.generate_open_route(column).to(locs.device),
                "speed": speed,
            },
            batch_size=batch_size,
        )
        return self.subsample_problems(instances, rng) if self.subsample else instances

    # ---------------------------------------------------------------- parts, to be overridden

    def generate_locations(
        self, batch_size: torch.Size, num_loc: int, rng: torch.Generator | None = None
    ) -> Tensor:
        """Depot and customers `[*B, N, 2]`."""
        return self.loc_sampler.sample(torch.Size((*batch_size, num_loc + 1, 2)), rng)

    def generate_demands(
        self, batch_size: torch.Size, num_loc: int, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Linehaul and backhaul demands in units, `[*B, n]` each; a customer has one of them."""
        size = (*batch_size, num_loc)
        device = None if rng is None else rng.device
        linehaul, backhaul = (
            torch.randint(low, high, size, generator=rng, device=device).float()
            for low, high in (
                (self.min_demand, self.max_demand),
                (self.min_backhaul, self.max_backhaul),
            )
        )
        is_backhaul = torch.rand(size, generator=rng, device=device) < self.backhaul_ratio
        return linehaul * ~is_backhaul, backhaul * is_backhaul

    def generate_time_windows(
        self, locs: Tensor, speed: Tensor, rng: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Time windows and service times.

        With the travel time $d_{0i}$ from the depot, service $s_i \\in [0.15, 0.18]$, length
        $t_i \\in [0.18, 0.2]$ and $u_i \\sim U(0, 1)$, a window opens at

        $$e_i = (1 + (h_i - 1) u_i) d_{0i}, \\quad h_i = \\frac{t_{max} - s_i - t_i}{d_{0i}} - 1$$

        and closes at $e_i + t_i$, early enough to serve the customer and return.

        Args:
            locs: Depot and customers `[*B, N, 2]`.
            speed: Distance per time `[*B, 1]`.
            rng: Source of randomness.

        Returns:
            `[*B, N, 2]` and `[*B, N]`; the depot's window is `[0, max_time]`.
        """
        travel = get_distance(locs[..., :1, :], locs[..., 1:, :]) / speed  # [*B, n]
        draws = torch.rand(3, *travel.shape, generator=rng, device=locs.device)
        service = SERVICE_TIME[0] + (SERVICE_TIME[1] - SERVICE_TIME[0]) * draws[0]
        length = WINDOW_LENGTH[0] + (WINDOW_LENGTH[1] - WINDOW_LENGTH[0]) * draws[1]
        # The formula above, without a division by the distance, which may be zero.
        spare = self.max_time - service - length - 2 * travel
        self._require("TW", "max_time", self._spare_time, spare)
        start = travel + draws[2] * spare
        early, late = pad_depot(start), pad_depot(start + length, self.max_time)
        return torch.stack([early, late], -1), pad_depot(service)

    def generate_distance_limit(self, shape: tuple[int, ...], locs: Tensor) -> Tensor:
        """The distance limit of each instance `[*B, 1]`, large enough for round trips."""
        distance = get_distance(locs[..., :1, :], locs[..., 1:, :])  # [*B, n]
        spare = self.distance_limit - 2 * distance
        self._require("L", "distance_limit", self._spare_distance, spare)
        return torch.full(shape, float(self.distance_limit), device=locs.device)

    def generate_open_route(self, shape: tuple[int, ...]) -> Tensor:
        """All routes open; the variant decides later."""
        return torch.ones(shape, dtype=torch.bool)

    def generate_speed(self, shape: tuple[int, ...]) -> Tensor:
        """The same speed for all instances."""
        return torch.full(shape, float(self.speed))

    def generate_backhaul_class(
        self, shape: tuple[int, ...], rng: torch.Generator | None = None
    ) -> Tensor:
        """The class of backhauls of each instance, as a float: 1 or 2."""
        if not self.sample_backhaul_class:
            return torch.full(shape, float(self.backhaul_class))
        device = None if rng is None else rng.device
        return torch.randint(1, 3, shape, generator=rng, device=device).float()

    def subsample_problems(
        self, td: TensorDictBase, rng: torch.Generator | None = None
    ) -> TensorDict:
        """Instances without the features that are not in the variants drawn for them.

        Args:
            td: Instances with all features; not modified.
            rng: Source of randomness.
        """
        has = draw_features(self._weights, td.batch_size, rng)  # feature → [*B, 1]
        windows, limit = td["time_windows"], td["distance_limit"]
        edge = torch.zeros_like(windows[..., 0])  # [*B, N]
        always = torch.stack([edge, torch.full_like(edge, math.inf)], -1)  # [*B, N, 2]
        linehaul, backhaul = td["demand_linehaul"], td["demand_backhaul"]
        changed = {
            "open_route": td["open_route"] & has["O"],
            "time_windows": torch.where(has["TW"].unsqueeze(-1), windows, always),
            "service_time": td["service_time"] * has["TW"],
            "distance_limit": torch.where(has["L"], limit, torch.full_like(limit, math.inf)),
            "demand_linehaul": linehaul + backhaul * ~has["B"],
            "demand_backhaul": backhaul * has["B"],
        }
        return TensorDict({**dict(td.items()), **changed}, batch_size=td.batch_size)

    # ---------------------------------------------------------------- helpers

    @staticmethod
    def save_data(td: TensorDictBase, path: str | Path, compress: bool = False) -> None:
        """Writes instances to an `.npz` file, compressed on request."""
        save_tensordict_to_npz(td, path, compress)

    @staticmethod
    def print_presets() -> None:
        """Prints the presets with the probabilities of their features."""
        for name, probabilities in VARIANT_GENERATION_PRESETS.items():
            print(f"{name}: {probabilities}")  # noqa: T201, its purpose

    @staticmethod
    def available_variants() -> list[str]:
        """Names of the sixteen variants, as in `variant_preset`."""
        return list(VARIANTS)

    @property
    def _spare_distance(self) -> float:
        """Smallest slack of the limit: after a round trip along the diagonal of the square."""
        return self.distance_limit - 2 * self._diagonal

    @property
    def _spare_time(self) -> float:
        """Smallest slack of the time, with the longest service and window."""
        return self.max_time - SERVICE_TIME[1] - WINDOW_LENGTH[1] - 2 * self._diagonal / self.speed

    @property
    def _diagonal(self) -> float:
        return math.sqrt(2) * (self.max_loc - self.min_loc)

    def _require(self, feature: str, name: str, least: float, spare: Tensor) -> None:
        """Raises unless every customer can be reached, if the feature can occur."""
        possible = not self.subsample or has_weight(self._weights, feature)
        safe = least > 0 and getattr(self.loc_sampler, "BOUNDED", False)
        if safe or not possible:  # without reading the data
            return
        if bool((spare < 0).any()):
            raise ConfigError(
                f"expected {name} to allow a round trip to every customer, got "
                f"{name}={getattr(self, name):g} for coordinates in [{self.min_loc:g}, "
                f"{self.max_loc:g}]; raise it or shrink the square"
            )

    def _check_settings(self) -> None:
        shares = {
            **{f"the probability of {key}": value for key, value in self.variant_probs.items()},
            "backhaul_ratio": self.backhaul_ratio,
        }
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"expected {name} to be between 0 and 1, got {value!r}")
        if self.backhaul_class not in (1, 2):
            raise ConfigError(f"expected backhaul_class 1 or 2, got {self.backhaul_class!r}")
        for name in ("capacity", "max_time", "distance_limit", "speed"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"expected {name} > 0, got {getattr(self, name)!r}")
        for kind in ("demand", "backhaul"):
            low, high = getattr(self, f"min_{kind}"), getattr(self, f"max_{kind}")
            if not (isinstance(low, int) and isinstance(high, int) and 0 <= low < high):
                raise ConfigError(
                    f"expected integers 0 <= min_{kind} < max_{kind}, got {low!r} and {high!r}"
                )
            if high - 1 > self.capacity:
                raise ConfigError(
                    f"expected max_{kind} - 1 of at most the capacity {self.capacity:g}, "
                    f"got {high - 1}; lower max_{kind} or raise capacity"
                )
