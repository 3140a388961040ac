"""MTVRP instances: the distributions of the paper, presets, variants and settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs import MTVRPEnv, MTVRPGenerator
from rl4co.envs.routing.mtvrp.generator import VARIANT_GENERATION_PRESETS, get_vehicle_capacity

#: The table of the paper.
TABLE = (
    "CVRP", "OVRP", "VRPB", "VRPL", "VRPTW", "OVRPTW", "OVRPB", "OVRPL",
    "VRPBL", "VRPBTW", "VRPLTW", "OVRPBL", "OVRPBTW", "OVRPLTW", "VRPBLTW", "OVRPBLTW",
)  # fmt: skip


def draw(batch: Any = 2000, seed: int = 1, **settings: Any) -> TensorDict:
    return MTVRPGenerator(**settings)(batch, rng=torch.Generator().manual_seed(seed))


def shares(td: TensorDict) -> dict[str, float]:
    """Share of each variant in a batch."""
    names = MTVRPEnv.get_variant_names(td)
    return {name: count / len(names) for name, count in Counter(names).items()}


# ---------------------------------------------------------------- distributions


def test_keys_and_shapes():
    """The published keys, for any number of batch axes."""
    td = draw([2, 3], num_loc=7)
    shapes = {key: tuple(value.shape[2:]) for key, value in td.items()}
    nodes, column = (8,), (1,)
    assert shapes == {
        "locs": (8, 2), "demand_linehaul": nodes, "demand_backhaul": nodes,
        "backhaul_class": column, "distance_limit": column, "time_windows": (8, 2),
        "service_time": nodes, "vehicle_capacity": column, "capacity_original": column,
        "open_route": column, "speed": column,
    }  # fmt: skip
    assert td["open_route"].dtype == torch.bool


@pytest.mark.parametrize(
    ("num_loc", "capacity"),
    [(1, 30), (20, 30), (21, 34), (50, 40), (100, 50), (1000, 230), (2000, 260), (5000, 350)],
)
def test_capacity_follows_the_formula(num_loc: int, capacity: int):
    """30 + n // 5 from 21 to 1000 customers, and 30 + floor(200 + (n - 1000) / 33.3) above."""
    assert get_vehicle_capacity(num_loc) == capacity
    assert MTVRPGenerator(num_loc=num_loc).capacity == capacity


def test_demands():
    """Whole units of 1 ... 9 divided by the capacity; one customer in five is a backhaul."""
    td = draw(num_loc=50, variant_preset="vrpb")
    assert torch.equal(td["vehicle_capacity"], torch.ones(2000, 1))
    assert torch.equal(td["capacity_original"], torch.full((2000, 1), 40.0))
    linehaul, backhaul = (td[f"demand_{kind}"] * 40 for kind in ("linehaul", "backhaul"))
    assert not linehaul[:, 0].any()
    assert not backhaul[:, 0].any()
    linehaul, backhaul = linehaul[:, 1:], backhaul[:, 1:]
    assert not ((linehaul > 0) & (backhaul > 0)).any()
    assert ((linehaul > 0) | (backhaul > 0)).all()
    assert (backhaul > 0).float().mean().item() == pytest.approx(0.2, abs=0.006)
    for values in (linehaul[linehaul > 0], backhaul[backhaul > 0]):
        torch.testing.assert_close(values, values.round(), atol=1e-4, rtol=0)
        counts = torch.bincount(values.round().long(), minlength=11) / len(values)
        np.testing.assert_allclose(counts, [0.0, *[1 / 9] * 9, 0.0], atol=0.01)


def test_time_windows():
    """Service, length and start as in the paper; every customer can be served and left in time."""
    td = draw(num_loc=50, variant_preset="vrptw", speed=2.0)
    windows, service = td["time_windows"], td["service_time"]
    assert torch.equal(windows[:, 0], torch.tensor([0.0, 4.6]).expand(2000, 2))
    assert not service[:, 0].any()
    travel = (td["locs"][:, 1:] - td["locs"][:, :1]).norm(dim=-1) / 2.0
    (opens, closes), service = windows[:, 1:].unbind(-1), service[:, 1:]
    for values, low, high in ((service, 0.15, 0.18), (closes - opens, 0.18, 0.2)):
        assert values.min() >= low - 1e-5
        assert values.max() <= high + 1e-5
        assert values.mean().item() == pytest.approx((low + high) / 2, abs=1e-3)
    assert (opens >= travel - 1e-6).all()
    assert (closes + service + travel <= 4.6 + 1e-5).all()
    # e = (1 + (h - 1) u) d with h = (t_max - s - t) / d - 1, solved for u: uniform on [0, 1].
    latest = (4.6 - service - (closes - opens)) / travel - 1
    u = ((opens / travel - 1) / (latest - 1)).flatten()
    deciles = torch.histc(u, bins=10, min=0, max=1) / len(u)
    np.testing.assert_allclose(deciles, 0.1, atol=0.006)


def test_a_customer_in_the_depot_has_a_window():
    """A distance of zero divides nothing."""
    td = draw(20, variant_preset="vrptw", num_loc=3, loc_distribution=0.5)
    assert td["time_windows"].isfinite().all()
    MTVRPEnv().reset(td)


def test_limits_and_speed():
    """The distance limit is 3 unless given; both are the same for all instances."""
    assert torch.equal(draw(5, variant_preset="vrpl")["distance_limit"], torch.full((5, 1), 3.0))
    td = draw(5, variant_preset="ovrpl", distance_limit=4.5, speed=0.5)
    assert torch.equal(td["distance_limit"], torch.full((5, 1), 4.5))
    assert torch.equal(td["speed"], torch.full((5, 1), 0.5))


def test_raw_demands():
    """Without scaling, units and capacity stay what they are."""
    td = draw(50, num_loc=20, scale_demand=False, min_demand=3, max_demand=5)
    assert torch.equal(td["vehicle_capacity"], torch.full((50, 1), 30.0))
    linehaul = td["demand_linehaul"][:, 1:][td["demand_backhaul"][:, 1:] == 0]
    assert set(linehaul.tolist()) <= set(range(1, 10))
    everything = draw(50, num_loc=20, scale_demand=False, min_demand=3, max_demand=5,
                      min_backhaul=6, max_backhaul=7, subsample=False)  # fmt: skip
    assert set(everything["demand_linehaul"].unique().tolist()) == {0.0, 3.0, 4.0}
    assert set(everything["demand_backhaul"].unique().tolist()) == {0.0, 6.0}


def test_locations_follow_their_distribution():
    """Depot and customers alike."""
    td = draw(500, num_loc=10, loc_distribution="normal", loc_mean=0.5, loc_std=0.05)
    assert td["locs"].std().item() == pytest.approx(0.05, abs=0.005)
    uniform = draw(500, num_loc=10)["locs"]
    assert uniform[:, 0].std().item() == pytest.approx(1 / np.sqrt(12), abs=0.02)
    assert (uniform.min() >= 0) & (uniform.max() <= 1)


# ---------------------------------------------------------------- variants


@pytest.mark.parametrize("settings", [{}, {"variant_preset": "all"}], ids=str)
def test_all_variants_are_equally_likely(settings: dict[str, Any]):
    """Sixteen variants in one batch."""
    found = shares(draw(8000, num_loc=40, **settings))
    assert set(found) == set(TABLE)
    np.testing.assert_allclose(list(found.values()), 1 / 16, atol=0.012)


@pytest.mark.parametrize(
    ("preset", "variants"),
    [
        ("single_feat", ["CVRP", "OVRP", "VRPB", "VRPL", "VRPTW"]),
        ("single_feat_otw", ["CVRP", "OVRP", "VRPB", "VRPL", "VRPTW", "OVRPTW"]),
    ],
)
def test_single_features(preset: str, variants: list[str]):
    """The training sets of Liu et al. (2024) and Zhou et al. (2024), equally often."""
    found = shares(draw(8000, num_loc=40, variant_preset=preset))
    assert set(found) == set(variants)
    np.testing.assert_allclose(list(found.values()), 1 / len(variants), atol=0.02)


@pytest.mark.parametrize("name", TABLE)
def test_preset_of_one_variant(name: str):
    """Each row of the paper's table by its name; what it does not have is neutral."""
    td = draw(50, num_loc=40, variant_preset=name.lower())
    assert shares(td) == {name: 1.0}
    assert td["open_route"].all() if name[0] == "O" else not td["open_route"].any()
    if "TW" not in name:
        neutral = torch.tensor([0.0, torch.inf]).expand(50, 41, 2)
        assert torch.equal(td["time_windows"], neutral)
        assert not td["service_time"].any()
    if "B" not in name:
        assert (td["demand_linehaul"][:, 1:] > 0).all()


def test_helpers_list_what_exists(capsys: pytest.CaptureFixture[str]):
    """The sixteen variants, and all presets with their probabilities."""
    assert [name.upper() for name in MTVRPGenerator.available_variants()] == list(TABLE)
    MTVRPGenerator.print_presets()
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(VARIANT_GENERATION_PRESETS) == 19
    assert printed[0] == "all: {'O': 0.5, 'TW': 0.5, 'L': 0.5, 'B': 0.5}"


def test_probabilities_of_features():
    """Independent of each other, and stronger than a preset."""
    td = draw(4000, num_loc=40, prob_open=0.9, prob_time_window=0.0, prob_limit=0.25)
    has_open, has_windows, has_limit, has_backhaul, _ = MTVRPEnv.check_variants(td)
    assert has_open.float().mean().item() == pytest.approx(0.9, abs=0.02)
    assert not has_windows.any()
    assert has_limit.float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert has_backhaul.float().mean().item() == pytest.approx(0.5, abs=0.03)
    both = (has_open & has_limit).float().mean().item()
    assert both == pytest.approx(0.9 * 0.25, abs=0.03)
    assert shares(draw(30, variant_preset="cvrp", prob_open=1.0)) == {"OVRP": 1.0}


def test_without_combinations():
    """One feature at most, by weight; none has weight 0.5."""
    td = draw(8000, num_loc=40, use_combinations=False, prob_open=1.0, prob_backhaul=0.0)
    found = shares(td)
    expected = {"CVRP": 0.2, "OVRP": 0.4, "VRPL": 0.2, "VRPTW": 0.2}
    assert set(found) == set(expected)
    for name, share in expected.items():
        assert found[name] == pytest.approx(share, abs=0.02)


def test_without_subsampling():
    """Every instance has everything, whatever the preset."""
    assert shares(draw(50, num_loc=40, subsample=False)) == {"OVRPBLTW": 1.0}
    assert shares(draw(9, num_loc=40, subsample=False, variant_preset="cvrp")) == {"OVRPBLTW": 1.0}


def test_removing_backhauls_keeps_customers():
    """They become linehauls of the same demand."""
    generator = MTVRPGenerator(num_loc=20, variant_preset="ovrpltw")
    everything = MTVRPGenerator(num_loc=20, subsample=False)(40)
    before = everything.clone()
    td = generator.subsample_problems(everything)
    demand = everything["demand_linehaul"] + everything["demand_backhaul"]
    torch.testing.assert_close(td["demand_linehaul"], demand)
    assert not td["demand_backhaul"].any()
    assert all(torch.equal(everything[key], before[key]) for key in before.keys())


def test_classes_of_backhauls():
    """Strict unless asked otherwise; drawn with equal chances on request."""
    assert draw(40)["backhaul_class"].unique().tolist() == [1.0]
    assert draw(40, backhaul_class=2)["backhaul_class"].unique().tolist() == [2.0]
    drawn = draw(4000, sample_backhaul_class=True)["backhaul_class"]
    assert drawn.unique().tolist() == [1.0, 2.0]
    assert drawn.mean().item() == pytest.approx(1.5, abs=0.03)


# ---------------------------------------------------------------- settings


def test_unknown_names_are_rejected():
    """With the nearest one."""
    with pytest.raises(UnknownNameError, match="no argument of MTVRPGenerator 'num_locs'; did"):
        MTVRPGenerator(num_locs=5)
    with pytest.raises(UnknownNameError, match="did you mean 'ovrptw'"):
        MTVRPGenerator(variant_preset="ovrp_tw")


def test_customers_out_of_reach_are_rejected():
    """Limits that do not fit the square; variants without them do not care."""
    large = {"max_loc": 100.0, "num_loc": 5}
    with pytest.raises(ConfigError, match=r"distance_limit=3 for coordinates in \[0, 100\]"):
        draw(10, variant_preset="vrpl", **large)
    with pytest.raises(ConfigError, match=r"max_time=4.6 for coordinates in \[0, 100\]"):
        draw(10, variant_preset="vrptw", **large)
    with pytest.raises(ConfigError, match="max_time"):
        draw(10, variant_preset="vrptw", speed=0.1)
    MTVRPEnv().reset(draw(10, variant_preset="ovrpb", **large))
    roomy = {**large, "distance_limit": 283.0, "max_time": 300.0}
    MTVRPEnv().reset(draw(10, variant_preset="vrpltw", **roomy))
