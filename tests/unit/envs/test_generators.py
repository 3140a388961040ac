"""Generators: the base class, TSP and CVRP instances, and rejected parameters."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from tensordict import TensorDict
from torch.distributions import Normal, Uniform

from rl4co.core.errors import ConfigError, UnknownArgumentError, UnknownNameError
from rl4co.envs.generator import Generator, parse_batch_size, sample_locs_and_depot
from rl4co.envs.routing.cvrp.generator import (
    CAPACITIES,
    CVRPGenerator,
    get_default_capacity,
    get_vehicle_capacity,
)
from rl4co.envs.routing.tsp.generator import TSPGenerator

GENERATORS = [TSPGenerator, CVRPGenerator]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Counting:
    """Sampler that returns 0, 1, 2, ... and remembers the sizes it was asked for."""

    def __init__(self) -> None:
        self.sizes: list[tuple[int, ...]] = []

    def sample(self, size, rng=None):
        self.sizes.append(tuple(size))
        return torch.arange(float(size.numel())).reshape(size)


# ---------------------------------------------------------------- base class


@pytest.mark.parametrize("generator_cls", GENERATORS)
@pytest.mark.parametrize("batch_size", [1, 5, [5], (2, 3), torch.Size([2, 3]), [], np.int64(4)])
def test_batch_sizes(generator_cls: type[Generator], batch_size):
    """An integer, any number of axes, or none."""
    expected = (batch_size,) if isinstance(batch_size, int | np.integer) else tuple(batch_size)
    instances = generator_cls(num_loc=6)(batch_size)
    assert instances.batch_size == expected
    assert instances["locs"].shape == (*expected, 6, 2)


@pytest.mark.parametrize("batch_size", [0, -1, [2, 0], 2.0, "4", None, True, [1.5], {3}])
def test_bad_batch_sizes_are_rejected(batch_size):
    """Only positive integers make a batch."""
    with pytest.raises(ConfigError, match="positive integer"):
        parse_batch_size(batch_size)


@pytest.mark.parametrize("generator_cls", GENERATORS)
def test_seed_reproduces_and_global_state_is_untouched(generator_cls: type[Generator]):
    """Every key is a function of the seed, and the global generator does not move."""
    before = torch.get_rng_state()
    generator = generator_cls(num_loc=8)
    first, second, other = generator(4, seeded(1)), generator(4, seeded(1)), generator(4, seeded(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[key], second[key]) for key in first.keys())
    assert not torch.equal(first["locs"], other["locs"])


@pytest.mark.parametrize("generator_cls", GENERATORS)
def test_instances_are_float32_without_nan(generator_cls: type[Generator]):
    """One precision for all keys."""
    instances = generator_cls()(3, seeded())
    for key, value in instances.items():
        assert value.dtype == torch.float32, key
        assert value.isfinite().all(), key


def test_seed_instead_of_generator_is_rejected():
    """An integer is not a random stream; the message says how to make one."""
    with pytest.raises(ConfigError, match="manual_seed"):
        TSPGenerator()(2, rng=1234)


def test_generate_without_rng_parameter_is_seeded_too():
    """A subclass that draws from the global state only is still governed by `rng`."""

    class Published(Generator):
        def _generate(self, batch_size):
            return TensorDict({"locs": torch.rand(*batch_size, 3, 2)}, batch_size=batch_size)

    before = torch.get_rng_state()
    first, second = (Published()(2, seeded())["locs"] for _ in range(2))
    assert torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(Published()(2)["locs"], Published()(2)["locs"])


def test_repr_shows_the_parameters():
    """Enough to build the same generator again."""
    text = repr(TSPGenerator(num_loc=7, max_loc=2.0))
    assert text == (
        "TSPGenerator(num_loc=7, min_loc=0.0, max_loc=2.0, init_sol_type='random', "
        "loc_sampler=UniformSampler(low=0.0, high=2.0))"
    )
    assert "capacity=30.0" in repr(CVRPGenerator())


@pytest.mark.parametrize("generator_cls", GENERATORS)
def test_generators_can_be_pickled(generator_cls: type[Generator]):
    """Worker processes may get them by pickle."""
    generator = generator_cls(num_loc=5)
    copy = pickle.loads(pickle.dumps(generator))
    assert torch.equal(copy(2, seeded())["locs"], generator(2, seeded())["locs"])


def test_depot_is_the_first_of_the_points_drawn_together():
    """Points 0 ... 7 of two instances with three customers: [0, 1] and [8, 9] are the depots."""
    locs, depot = sample_locs_and_depot(torch.Size([2]), 3, Counting())
    assert depot.tolist() == [[0, 1], [8, 9]]
    assert locs[0].tolist() == [[2, 3], [4, 5], [6, 7]]


def test_depot_with_a_separate_sampler_is_one_point_per_instance():
    """The sampler sees [B, 1, 2], so that point patterns do not spread over the batch."""
    sampler, depot_sampler = Counting(), Counting()
    locs, depot = sample_locs_and_depot(torch.Size([4]), 3, sampler, depot_sampler)
    assert (sampler.sizes, depot_sampler.sizes) == ([(4, 3, 2)], [(4, 1, 2)])
    assert locs.shape == (4, 3, 2)
    assert depot.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


# ---------------------------------------------------------------- TSP


@pytest.mark.parametrize("distribution", ["uniform", Uniform])
def test_tsp_locations(distribution):
    """Uniform in the given square, by name or by torch class: mean 3, variance 16 / 12."""
    generator = TSPGenerator(num_loc=50, min_loc=1.0, max_loc=5.0, loc_distribution=distribution)
    locs = generator(200, seeded())["locs"]
    assert locs.shape == (200, 50, 2)
    assert locs.min() >= 1
    assert locs.max() <= 5
    assert locs.mean().item() == pytest.approx(3, abs=0.05)
    assert locs.var().item() == pytest.approx(16 / 12, rel=0.05)


def test_tsp_options_reach_the_distribution():
    """`loc_mean` and `loc_std` are the normal's; the square still bounds its values."""
    generator = TSPGenerator(loc_distribution="normal", loc_mean=0.9, loc_std=0.1)
    locs = generator(500, seeded())["locs"]
    assert locs.max() == 1
    # E[min(X, 1)] with X ~ N(0.9, 0.1²): 0.9 - 0.1 · (φ(1) - (1 - Φ(1))) = 0.8917
    assert locs.mean().item() == pytest.approx(0.8917, abs=0.003)


def test_tsp_takes_a_ready_made_sampler():
    """It wins over the distribution and is not clipped to the square."""
    generator = TSPGenerator(num_loc=4, loc_sampler=Normal(100.0, 1.0), loc_distribution="corner")
    assert generator(10, seeded())["locs"].mean().item() == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_loc": 0}, ConfigError, "num_loc"),
        ({"num_loc": 2.5}, ConfigError, "num_loc"),
        ({"num_loc": True}, ConfigError, "num_loc"),
        ({"min_loc": 1.0, "max_loc": 1.0}, ConfigError, "min_loc < max_loc"),
        ({"init_sol_type": "gredy"}, UnknownNameError, "did you mean 'greedy'"),
        ({"loc_distribution": "clusters"}, UnknownNameError, "did you mean 'cluster'"),
        ({"num_locs": 30}, UnknownArgumentError, "'num_locs'; did you mean 'num_loc'"),
        ({"loc_mean": 0.5}, UnknownArgumentError, "loc_mean"),
    ],
)
def test_bad_tsp_parameters_are_rejected(options, error, message):
    """A misspelt argument is not swallowed, an impossible value is named."""
    with pytest.raises(error, match=message):
        TSPGenerator(**options)


# ---------------------------------------------------------------- CVRP


@pytest.mark.parametrize("num_loc", [10, 20, 50, 100])
def test_cvrp_instances(num_loc: int):
    """Demands are 1 ... 9 units, each equally often, over the capacity of the table."""
    instances = CVRPGenerator(num_loc)(500, seeded())
    capacity = CAPACITIES[num_loc]
    assert instances["locs"].shape == (500, num_loc, 2)
    assert instances["depot"].shape == (500, 2)
    assert instances["demand"].shape == (500, num_loc)
    assert instances["capacity"].shape == (500, 1)
    assert (instances["capacity"] == capacity).all()
    units = instances["demand"] * capacity
    torch.testing.assert_close(units, units.round(), rtol=0, atol=1e-5)
    values, counts = units.round().unique(return_counts=True)
    assert values.tolist() == list(range(1, 10))
    share = counts / counts.sum()
    assert (share - 1 / 9).abs().max() < 0.02
    # Stored exactly as integer / capacity in float32.
    assert torch.equal(instances["demand"], units.round() / capacity)


def test_cvrp_depot_follows_the_customers_or_another_distribution():
    """Drawn together by default, otherwise from `depot_distribution`, also at a constant 0."""
    together = CVRPGenerator(num_loc=8, loc_distribution="cluster", n_cluster=1)(400, seeded())
    gap = (together["depot"] - together["locs"].mean(1)).abs().mean().item()
    assert gap < 0.1  # the same cluster; independent points would be 0.2 or more apart
    options = {"min_loc": 2.0, "max_loc": 4.0}
    for distribution, expected in [("center", 3.0), ("corner", 2.0), (0, 0.0)]:
        generator = CVRPGenerator(depot_distribution=distribution, **options)
        assert (generator(3, seeded())["depot"] == expected).all()
    assert (CVRPGenerator(depot_sampler=Uniform(7.0, 7.1))(3)["depot"] >= 7).all()


def test_cvrp_depot_of_a_point_pattern_differs_between_instances():
    """One depot per instance: with σ = 0.07 around a common centre the spread would be 0.07."""
    depot = CVRPGenerator(depot_distribution="cluster", n_cluster=1)(2000, seeded())["depot"]
    # Var = 0.6² / 12 + 0.07² = 0.0349
    assert depot.var(0).tolist() == pytest.approx([0.0349, 0.0349], rel=0.08)


def test_cvrp_demand_distributions():
    """Named ones are clipped to the bounds, a number is everybody's demand."""
    poisson = CVRPGenerator(50, demand_distribution="poisson", demand_rate=6.0)
    units = (poisson(200, seeded())["demand"] * 40).round()
    assert units.min() == 1
    assert units.max() == 9
    # E[min(max(X, 1), 9)] for X ~ Poisson(6) is 5.86.
    assert units.mean().item() == pytest.approx(5.86, abs=0.05)
    constant = CVRPGenerator(20, demand_distribution=12)(2)
    torch.testing.assert_close(constant["demand"], torch.full((2, 20), 12 / 30))


def test_cvrp_vehicle_capacity_multiplies_the_capacity():
    """A vehicle that carries twice the table's load: the instance says so itself."""
    instances = CVRPGenerator(20, vehicle_capacity=2.0, demand_distribution=6)(2)
    assert (instances["capacity"] == 60).all()
    torch.testing.assert_close(instances["demand"], torch.full((2, 20), 0.1))


@pytest.mark.parametrize(
    ("num_loc", "expected"),
    [(10, 20), (20, 30), (50, 40), (100, 50), (1000, 150), (5, 30), (21, 34), (99, 49), (300, 90)],
)
def test_default_capacity(num_loc: int, expected: float):
    """The table of the literature, and the formula 30 + n // 5 for sizes that it does not have."""
    assert get_default_capacity(num_loc) == expected
    assert CVRPGenerator(num_loc).capacity == expected


@pytest.mark.parametrize(
    ("num_loc", "expected"),
    [(1, 30), (20, 30), (21, 34), (100, 50), (1000, 230), (2000, 260), (5000, 350), (10_000, 500)],
)
def test_capacity_formula(num_loc: int, expected: float):
    """The values that the papers give: 260 at 2000, 350 at 5000, 500 at 10 000 customers."""
    assert get_vehicle_capacity(num_loc) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_loc": 0}, "num_loc"),
        ({"min_demand": 10, "max_demand": 10}, "min_demand < max_demand"),
        ({"min_demand": -1}, "min_demand"),
        ({"min_demand": 1.5}, "min_demand"),
        ({"capacity": 0}, "capacity > 0"),
        ({"capacity": float("nan")}, "capacity > 0"),
        ({"vehicle_capacity": -1.0}, "vehicle_capacity > 0"),
        ({"capacity": 8}, "demands up to 9"),
        ({"max_demand": 40}, "demands up to 39"),
        ({"demand_distribution": 31}, "demands up to 31"),
        ({"demand_distribution": -2}, "demands up to -2"),
        ({"depot_mean": 0.5}, "depot_mean"),
        ({"n_cluster": 3}, "n_cluster"),
    ],
)
def test_bad_cvrp_parameters_are_rejected(options, message):
    """Impossible values and options that no distribution takes are named."""
    with pytest.raises((ConfigError, UnknownArgumentError), match=message):
        CVRPGenerator(**options)


def test_demand_equal_to_capacity_is_allowed():
    """Nine units in a vehicle of nine: feasible."""
    assert CVRPGenerator(20, capacity=9)(50, seeded())["demand"].max() == 1
