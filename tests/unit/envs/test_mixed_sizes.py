"""Instances of many sizes, and instances like those of the X set."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import ConfigError
from rl4co.envs import CVRPEnv, CVRPGenerator, CVRPXGenerator, MixedSizeGenerator, TSPGenerator
from rl4co.envs.routing.cvrp.x_set import _triangular


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_sizes_are_drawn_per_call():
    """All sizes of the range, both ends included, and no others; a seed repeats its size."""
    generator, rng = MixedSizeGenerator(TSPGenerator(), 5, 8), seeded()
    sizes = [generator(2, rng=rng)["locs"].shape[-2] for _ in range(60)]
    assert set(sizes) == {5, 6, 7, 8}
    again = generator(2, rng=seeded())
    assert torch.equal(again["locs"], generator(2, rng=seeded())["locs"])


def test_what_follows_from_the_size_follows():
    """The default capacity is that of the size drawn; a chosen one stays, as other settings."""
    follows = MixedSizeGenerator(CVRPGenerator(num_loc=20), 50, 50)(3, rng=seeded())
    assert follows["capacity"].flatten().tolist() == [40.0] * 3
    fixed = MixedSizeGenerator(CVRPGenerator(capacity=90.0, min_demand=9), 50, 50)(3, rng=seeded())
    assert fixed["capacity"].flatten().tolist() == [90.0] * 3
    assert torch.equal((90 * fixed["demand"]).round(), torch.full((3, 50), 9.0))


def test_bad_ranges_raise():
    with pytest.raises(ConfigError, match="max_size"):
        MixedSizeGenerator(TSPGenerator(), 9, 8)
    with pytest.raises(ConfigError, match="Generator"):
        MixedSizeGenerator("tsp")


def test_environments_run_on_it():
    """Resets and episodes of whatever size comes; specs do not touch the stream of instances."""
    env = CVRPEnv(generator=MixedSizeGenerator(CVRPXGenerator(), 4, 6), seed=0)
    sizes = {env.reset(batch_size=2)["demand"].shape[-1] for _ in range(20)}
    assert sizes == {5, 6, 7}


def test_instances_are_feasible_and_of_all_kinds():
    """Integer demands that fit; depots of three kinds; route lengths from 3 to 25."""
    instances = CVRPXGenerator(num_loc=60)(400, rng=seeded(1))
    CVRPEnv(generator=CVRPXGenerator(num_loc=60)).reset(instances)  # raises for bad instances
    units = instances["demand"] * instances["capacity"]
    torch.testing.assert_close(units, units.round(), atol=1e-3, rtol=0.0)
    assert float(units.min()) >= 1 - 1e-3
    assert float(units.max()) <= 100 + 1e-3
    assert float(instances["demand"].max()) <= 1.0
    locs, depot = instances["locs"], instances["depot"]
    assert 0.0 <= float(locs.min()) < float(locs.max()) <= 1.0
    center, corner = (depot == 0.5).all(-1), (depot == 0.0).all(-1)
    for kind in (center, corner, ~(center | corner)):
        assert 0.2 < float(kind.float().mean()) < 0.47
    unitary = (units.round() == 1).all(-1).float().mean()
    assert 0.08 < float(unitary) < 0.21  # one of seven kinds
    length = instances["capacity"].squeeze(-1) / units.mean(-1)
    assert float(length.min()) > 1.0
    assert float(length.max()) < 30.0


def test_clusters_are_dense():
    """A third of the instances has all customers in clusters, where neighbours are near."""
    locs = CVRPXGenerator(num_loc=100)(300, rng=seeded(2))["locs"]
    distance = torch.cdist(locs, locs) + 9.0 * torch.eye(100)
    nearest = distance.amin(-1).mean(-1)  # [B]; 0.5 / sqrt(100) = 0.05 for uniform points
    assert 0.2 < float((nearest < 0.033).float().mean()) < 0.47
    assert float(nearest.max()) > 0.045


def test_triangular_by_hand():
    """With limits 3 and 25 and mode 6: F(6) = 3 / 22, where both branches meet."""
    u = torch.tensor([0.0, 3 / 22, 1.0])
    torch.testing.assert_close(_triangular(u, 3.0, 6.0, 25.0), torch.tensor([3.0, 6.0, 25.0]))
    # The median: 25 - sqrt(0.5 * 22 * 19) = 25 - 14.4568
    median = _triangular(torch.tensor(0.5), 3.0, 6.0, 25.0)
    assert float(median) == pytest.approx(10.5432, abs=1e-3)
