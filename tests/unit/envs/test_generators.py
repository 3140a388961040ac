"""Generators: the base class, TSP and CVRP instances, and rejected parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tensordict import TensorDict
from torch.distributions import Normal, Uniform

from rl4co import envs
from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs.generator import Generator, parse_batch_size, sample_locs_and_depot
from rl4co.envs.routing.cvrp.generator import (
    CAPACITIES,
    CVRPGenerator,
    get_default_capacity,
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
    assert all(value.dtype == torch.float32 for value in first.values())
    assert not torch.equal(first["locs"], other["locs"])


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


def test_demand_equal_to_capacity_is_allowed():
    """Nine units in a vehicle of nine: feasible."""
    assert CVRPGenerator(20, capacity=9)(50, seeded())["demand"].max() == 1


# ---------------------------------------------------------------- arguments of all problems


#: Class → arguments without meaning. The error names the first of them.
BAD_ARGUMENTS: dict[type, list[dict[str, Any]]] = {
    TSPGenerator: [
        {"num_loc": 0}, {"num_loc": 2.5}, {"num_loc": True}, {"min_loc": 1.0, "max_loc": 1.0},
        {"num_locs": 30}, {"loc_mean": 0.5},
    ],
    envs.ATSPGenerator: [
        {"num_loc": 0}, {"min_dist": -1.0}, {"min_dist": 1.0}, {"loc_distribution": "uniform"},
    ],
    CVRPGenerator: [
        {"num_loc": 0}, {"min_demand": 10, "max_demand": 10}, {"min_demand": -1},
        {"min_demand": 1.5}, {"capacity": 0}, {"capacity": float("nan")},
        {"vehicle_capacity": -1.0}, {"capacity": 8}, {"max_demand": 40}, {"depot_mean": 0.5},
        {"n_cluster": 3},
    ],
    envs.CVRPTWGenerator: [
        {"max_time": 400.0}, {"duration": -1.0}, {"capacity": 5.0}, {"speed": 2.0},
    ],
    envs.MTVRPGenerator: [
        {"backhaul_ratio": -0.1}, {"backhaul_class": 3}, {"speed": 0.0}, {"capacity": 8},
        {"min_backhaul": 5, "max_backhaul": 5}, {"min_demand": 0.5}, {"num_loc": 0},
    ],
    envs.MTSPGenerator: [
        {"num_loc": 1}, {"min_num_agents": 0}, {"max_num_agents": 4}, {"max_num_agents": 2.5},
        {"min_loc": 1.0}, {"mean": 0.5},
    ],
    envs.OPGenerator: [{"max_length": -1.0}],
    envs.PCTSPGenerator: [
        {"prize_required": 4.5}, {"prize_required": -1.0}, {"penalty_factor": -1.0},
    ],
    envs.PDPGenerator: [{"num_loc": size} for size in (0, -2, 1, 7, 2.0, True)],
    envs.MDCPDPGenerator: [
        {"num_loc": 5}, {"num_loc": 0}, {"num_agents": 0}, {"num_agents": 2.0},
        {"min_capacity": 0}, {"max_capacity": 2}, {"max_capacity": True},
        {"max_lateness_weight": 1.5}, {"min_lateness_weight": -0.5},
        {"min_lateness_weight": 0.5, "max_lateness_weight": 0.4}, {"min_loc": 1.0},
        {"loc_rate": 1.0},
    ],
    envs.SVRPGenerator: [
        {"tech_costs": []}, {"tech_costs": [1, -1]}, {"tech_costs": [0, 0]},
        {"min_skill": 5.0, "max_skill": 5.0}, {"min_skill": -1.0}, {"num_loc": 0},
        {"num_tech": 3},
    ],
    envs.FLPGenerator: [
        {"to_choose": number, "num_loc": 5} for number in (0, 6, -1, 2.5, True)
    ],
    envs.MCPGenerator: [
        {"n_sets_to_choose": 101}, {"n_sets_to_choose": 0}, {"min_size": 16},
        {"min_weight": -1}, {"num_sets": 2.5},
    ],
    envs.DPPGenerator: [
        {"num_keepout_min": 5, "num_keepout_max": 3}, {"num_keepout_max": 2.5},
        {"min_decaps": 0}, {"max_decaps": 0}, {"max_decaps": 2.5}, {"min_loc": 1.0},
    ],
    envs.MDPPGenerator: [{"num_probes_min": 6}],
    envs.MDPPEnv: [{"max_probes": 0}],
    envs.FJSPGenerator: [
        {"num_jobs": 0}, {"num_machines": 2.5}, {"min_ops_per_job": 7},
        {"min_processing_time": 0}, {"max_eligible_ma_per_op": 6},
    ],
    envs.JSSPGenerator: [{"one2one_ma_map": True, "max_ops_per_job": 8}],
    envs.FFSPGenerator: [
        {"num_stage": 0}, {"num_machine": 1.5}, {"num_job": True}, {"min_time": 0},
        {"min_time": 5, "max_time": 5}, {"max_time": 3.0},
    ],
    envs.SMTWTPGenerator: [
        {"num_job": 0}, {"num_job": 2.0}, {"max_time_span": -1.0}, {"max_job_weight": 0.0},
        {"min_process_time": 1.0}, {"min_job_weight": -1.0}, {"min_process_time": -0.5},
    ],
    envs.TSPkoptEnv: [{"k_max": k} for k in (1, 0, -3, 2.0, True)],
}  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [(cls, arguments) for cls, rows in BAD_ARGUMENTS.items() for arguments in rows],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_bad_arguments_are_named(cls: type, arguments: dict[str, Any]):
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        cls(**arguments)


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (TSPGenerator, {"init_sol_type": "gredy"}),
        (TSPGenerator, {"loc_distribution": "clusters"}),
        (envs.ATSPGenerator, {"dist_distribution": "unifrom"}),
        (envs.PDPGenerator, {"init_sol_type": "greed"}),
        (envs.MTSPEnv, {"cost_type": "max"}),
        (envs.MDPPEnv, {"reward_type": "min"}),
        (envs.MDCPDPGenerator, {"depot_mode": "other"}),
        *[(envs.MDCPDPEnv, {f"{kind}_mode": "other"})
          for kind in ("dist", "reward", "problem", "start")],
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_unknown_names_in_arguments(cls: type, arguments: dict[str, str]):
    with pytest.raises(UnknownNameError, match=repr(next(iter(arguments.values())))):
        cls(**arguments)


@pytest.mark.parametrize(
    ("name", "sizes", "starts"),
    [
        ("tsp", {"num_loc": 4}, range(4)),
        ("atsp", {"num_loc": 4}, range(4)),
        ("cvrp", {"num_loc": 3}, range(1, 4)),
        ("cvrptw", {"num_loc": 7}, range(1, 8)),
        ("mtvrp", {"num_loc": 3}, range(1, 4)),
        ("mtsp", {"num_loc": 4}, range(1, 4)),
        ("pctsp", {"num_loc": 3}, range(1, 4)),
        ("pdp", {"num_loc": 6}, range(1, 4)),
        ("mdcpdp", {"num_loc": 4, "num_agents": 3}, range(3)),
        ("flp", {"num_loc": 5}, range(5)),
        ("smtwtp", {"num_job": 8}, range(1, 9)),
    ],
)
def test_starts_are_those_of_the_instance(name: str, sizes: dict[str, int], starts: range):
    """Not those of the environment's generator, which makes other sizes; starts are outermost."""
    env = envs.get_env(name)
    td = env.reset(envs.get_env(name, generator_params=sizes).generate(2))
    assert env.get_num_starts(td) == len(starts)
    expected = [start for start in starts for _ in range(2)]
    assert env.select_start_nodes(td, len(starts)).tolist() == expected
    assert env.select_start_nodes(td, 1).tolist() == expected[:2]
