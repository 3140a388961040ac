"""Samplers: supports, moments, seeds, options and what happens with bad ones."""

from __future__ import annotations

import pickle

from functools import partial

import pytest
import torch

from torch.distributions import Beta, Gamma, MultivariateNormal, Normal, Uniform

from rl4co.core.errors import ConfigError, UnknownArgumentError, UnknownNameError
from rl4co.envs.distributions import SamplerSpec, build_samplers, get_sampler
from rl4co.envs.point_patterns import MULTI_DISTRIBUTION_PAIRS
from rl4co.envs.sampler_adapters import ClippedSampler
from rl4co.envs.samplers import SAMPLERS, Sampler

# Options with which each name can be built.
OPTIONS: dict[str, dict[str, float]] = {
    "normal": {"x_mean": 0.4, "x_std": 0.1},
    "gaussian": {"x_mean": 0.4, "x_std": 0.1},
    "exponential": {"x_rate": 4.0},
    "beta": {"x_alpha": 2.0, "x_beta": 6.0},
    "poisson": {"x_rate": 3.0},
    "gaussian_mixture": {"num_modes": 3, "cdist": 10},
}
PLANAR = ["cluster", "mixed", "gaussian_mixture", "mix_distribution", "mix_multi_distributions"]
FOREIGN = {
    "torch class": Uniform,
    "torch object": Normal(0.0, 1.0),
    "function of size": lambda size: torch.rand(size),
    "function of size and rng": lambda size, rng: torch.rand(size, generator=rng),
    "built-in function": torch.rand,
    "factory": lambda: Beta(2.0, 2.0),
}


def make(name: str, low: float = 0.0, high: float = 1.0) -> Sampler:
    return get_sampler("x", name, low, high, **OPTIONS.get(name, {}))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------- all samplers


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("size", [(1, 7, 2), (3, 7, 2), (2, 3, 7, 2), (7, 2), (2, 1, 2)])
def test_named_samplers_draw_the_size_asked_for(name: str, size: tuple[int, ...]):
    """Any number of batch axes, one instance, no batch axis, one node: float32 and no NaN."""
    values = make(name).sample(torch.Size(size), seeded())
    assert values.shape == size
    assert values.dtype == torch.float32
    assert values.isfinite().all()


@pytest.mark.parametrize("distribution", [*SAMPLERS, *FOREIGN])
def test_seed_reproduces_and_global_state_is_untouched(distribution: str):
    """Equal seeds give equal values, and torch's global generator does not move."""
    sampler = (
        get_sampler("x", FOREIGN[distribution]) if distribution in FOREIGN else make(distribution)
    )
    before = torch.get_rng_state()
    first, second = (sampler.sample(torch.Size([4, 9, 2]), seeded(3)) for _ in range(2))
    other = sampler.sample(torch.Size([4, 9, 2]), seeded(4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert distribution in ("center", "corner") or not torch.equal(first, other)


@pytest.mark.parametrize("distribution", [*SAMPLERS, *FOREIGN])
def test_successive_draws_from_one_generator_differ(distribution: str):
    """A generator moves on: forking the global state must not freeze it."""
    sampler = (
        get_sampler("x", FOREIGN[distribution]) if distribution in FOREIGN else make(distribution)
    )
    rng = seeded()
    first, second = (sampler.sample(torch.Size([4, 9, 2]), rng) for _ in range(2))
    assert distribution in ("center", "corner") or not torch.equal(first, second)


def test_without_rng_the_global_generator_decides():
    """`torch.manual_seed` governs samplers that are called without rng, torch's own included."""
    for distribution in ("uniform", Normal(0.0, 1.0)):
        sampler = get_sampler("x", distribution)
        torch.manual_seed(5)
        first = sampler.sample(torch.Size([6]))
        second = sampler.sample(torch.Size([6]))
        torch.manual_seed(5)
        assert torch.equal(sampler.sample(torch.Size([6])), first)
        assert not torch.equal(first, second)


@pytest.mark.parametrize("name", SAMPLERS)
def test_named_samplers_can_be_pickled_and_shown(name: str):
    """Worker processes get samplers by pickle; the text names the class and its parameters."""
    sampler = make(name)
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    assert repr(sampler).startswith(f"{type(sampler).__name__}(low=0.0, high=1.0")


# ---------------------------------------------------------------- single values


@pytest.mark.parametrize(
    ("name", "low", "high", "mean", "std"),
    [
        ("uniform", -2.0, 4.0, 1.0, 6 / 12**0.5),
        ("normal", 0.0, 1.0, 0.4, 0.1),
        ("gaussian", 0.0, 1.0, 0.4, 0.1),
        ("exponential", 0.0, 1.0, 1 / 4, 1 / 4),
        ("poisson", 0.0, 1.0, 3.0, 3**0.5),
        # Beta(2, 6): mean 1/4, variance 12 / (64 · 9) = 1/48; stretched by 8 from 1.
        ("beta", 1.0, 9.0, 1 + 8 / 4, 8 / 48**0.5),
    ],
)
def test_moments(name: str, low: float, high: float, mean: float, std: float):
    """Mean and standard deviation of 40 000 draws, within five standard errors."""
    values = make(name, low, high).sample(torch.Size([40_000]), seeded())
    assert values.mean().item() == pytest.approx(mean, abs=5 * std / 200)
    assert values.std().item() == pytest.approx(std, rel=0.05)


def test_uniform_fills_the_interval_and_stays_inside():
    """Support [-3, 5]."""
    values = make("uniform", -3.0, 5.0).sample(torch.Size([10_000]), seeded())
    assert -3 <= values.min() < -2.98
    assert 4.98 < values.max() <= 5


def test_poisson_draws_counts():
    """Values are whole numbers."""
    values = make("poisson").sample(torch.Size([1000]), seeded())
    assert torch.equal(values, values.round())
    assert values.max() > 5


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (2.0, 6.0), (-1.0, 1.0)])
def test_center_and_corner(low: float, high: float):
    """Middle and lower end of any interval, not only of those that start at 0."""
    size = torch.Size([3, 2])
    assert (make("center", low, high).sample(size) == (low + high) / 2).all()
    assert (make("corner", low, high).sample(size) == low).all()


@pytest.mark.parametrize("value", [3, 2.5, 0, -1.0])
def test_number_is_a_constant(value: float):
    """Whatever low and high are."""
    assert (get_sampler("x", value, 0.0, 1.0).sample(torch.Size([2, 3])) == value).all()


# ---------------------------------------------------------------- points of the plane


@pytest.mark.parametrize("name", PLANAR)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-5.0, 3.0)])
def test_planar_samplers_stay_in_their_square(name: str, low: float, high: float):
    """Coordinates lie in [low, high] and use more than half of it."""
    points = make(name, low, high).sample(torch.Size([64, 30, 2]), seeded())
    assert points.min() >= low
    assert points.max() <= high
    assert points.max() - points.min() > (high - low) / 2


@pytest.mark.parametrize("name", PLANAR)
def test_planar_samplers_reject_single_values(name: str):
    """A batch of demands is not a set of points."""
    with pytest.raises(ConfigError, match=r"size \[\*B, N, 2\]"):
        make(name).sample(torch.Size([4, 20]))


def test_clusters_are_blocks_of_equal_size_around_their_centers():
    """Eleven points in three clusters are 4 + 4 + 3; within a cluster the spread is 0.07."""
    points = get_sampler("loc", "cluster", n_cluster=3).sample(torch.Size([4000, 11, 2]), seeded())
    blocks = points.split([4, 4, 3], dim=1)
    for block in blocks:
        inner = (block - block.mean(1, keepdim=True)).square().sum(1) / (block.shape[1] - 1)
        assert inner.mean().sqrt().item() == pytest.approx(0.07, rel=0.03)
    # Centres are U(0.2, 0.8): variance 0.03; a mean of four points adds 0.07² / 4.
    centers = blocks[0].mean(1)
    assert centers.mean().item() == pytest.approx(0.5, abs=0.01)
    assert centers.var().item() == pytest.approx(0.03 + 0.0049 / 4, rel=0.06)
    # Neighbours in different blocks are as far apart as two independent centres.
    gap = (points[:, 3] - points[:, 4]).square().mean().item()
    assert gap == pytest.approx(2 * (0.03 + 0.0049), rel=0.06)


def test_one_cluster_per_point_and_more_clusters_than_points():
    """No cluster is required to have a point."""
    points = get_sampler("loc", "cluster", n_cluster=9).sample(torch.Size([2, 4, 2]), seeded())
    assert points.shape == (2, 4, 2)


def test_mixed_clusters_half_of_the_points_at_random_positions():
    """Nearly all of the clustered half, and few of the others, lie near the common centre.

    20 of 40 points are within 0.21 (3σ per axis) of the centre, found here as the densest point.
    """
    points = make("mixed").sample(torch.Size([500, 40, 2]), seeded())
    distance = (points.unsqueeze(2) - points.unsqueeze(1)).abs().amax(-1)  # [B, N, N]
    neighbours = (distance < 0.14).sum(-1)  # [B, N]
    densest = neighbours.argmax(-1)
    near = distance[torch.arange(500), densest] < 0.21  # [B, N]
    count = near.float().sum(-1).mean().item()
    # 20 clustered ones, and of 20 uniform ones about 20 · 0.42² = 3.5.
    assert 21 < count < 25
    # Positions are random: each index is clustered about equally often.
    share = near.float().mean(0)
    assert share.std() < 0.04


def test_mixed_with_several_clusters_has_uniform_half_left():
    """With 10 points and 4 clusters, sizes are 1, 1, 1, 2 and 5 points stay uniform."""
    sampler = get_sampler("loc", "mixed", n_cluster_mix=4)
    points = sampler.sample(torch.Size([4000, 10, 2]), seeded())
    # Clustered points are in the margin (< 0.1 or > 0.9 on an axis) far less often than uniform
    # ones, for which the share is 0.2 per axis; half of each gives a value in between.
    margin = ((points < 0.1) | (points > 0.9)).float().mean().item()
    clustered = get_sampler("loc", "cluster").sample(torch.Size([4000, 10, 2]), seeded())
    clustered_margin = ((clustered < 0.1) | (clustered > 0.9)).float().mean().item()
    assert margin == pytest.approx((0.2 + clustered_margin) / 2, abs=0.01)


@pytest.mark.parametrize("cdist", [10, 50])
def test_gaussian_mixture_touches_all_sides(cdist: int):
    """Min-max scaling puts the extreme points of each instance on the border, axis by axis."""
    sampler = get_sampler("loc", "gaussian_mixture", num_modes=3, cdist=cdist)
    points = sampler.sample(torch.Size([50, 40, 2]), seeded())
    assert (points.amin(1) == 0).all()
    assert (points.amax(1) == 1).all()


def test_gaussian_mixture_has_its_modes():
    """Two modes thousands of σ apart: points fall in two tight groups, both used."""
    sampler = get_sampler("loc", "gaussian_mixture", num_modes=2, cdist=1e5)
    x = sampler.sample(torch.Size([200, 60, 2]), seeded())[..., 0]  # [B, N]
    inner = ((x > 0.2) & (x < 0.8)).float().mean().item()
    assert inner < 0.01
    upper = (x > 0.5).float().mean().item()
    assert 0.45 < upper < 0.55


def test_gaussian_mixture_special_cases():
    """(0, ·) is uniform; (1, 1) keeps the aspect ratio: the longer side is 1, both are centred."""
    uniform = get_sampler("loc", "gaussian_mixture", num_modes=0, cdist=0)
    points = uniform.sample(torch.Size([100, 100, 2]), seeded())
    assert points.var().item() == pytest.approx(1 / 12, rel=0.03)
    gaussian = get_sampler("loc", "gaussian_mixture", num_modes=1, cdist=1)
    points = gaussian.sample(torch.Size([300, 50, 2]), seeded())
    low, high = points.amin(1), points.amax(1)  # [B, 2]
    torch.testing.assert_close((high - low).amax(-1), torch.ones(300))
    torch.testing.assert_close((low + high) / 2, torch.full((300, 2), 0.5))
    x, y = (points - points.mean(1, keepdim=True)).unbind(-1)
    correlation = (x * y).sum(1) / (x.square().sum(1) * y.square().sum(1)).sqrt()
    # U(0, 1) per instance: mean 1/2, and some instances near either end.
    assert correlation.mean().item() == pytest.approx(0.5, abs=0.06)
    assert correlation.min() < 0.15
    assert correlation.max() > 0.85


def test_mix_distribution_chooses_per_instance():
    """About a third of the instances each: uniform, mixed and clustered ones differ in spread."""
    points = make("mix_distribution").sample(torch.Size([3000, 60, 2]), seeded())
    distance = (points.unsqueeze(2) - points.unsqueeze(1)).abs().amax(-1)
    # Average number of the other 59 points within 0.07: about 59 · 0.14² = 1 for uniform points,
    # 59/3 · 0.27 ≈ 5.3 or more for clusters, and in between for mixed instances.
    crowd = (distance < 0.07).sum(-1).float().mean(-1) - 1
    shares = [(crowd < 1.7).float().mean(), (crowd > 4.4).float().mean()]
    assert shares[0].item() == pytest.approx(1 / 3, abs=0.04)
    assert 0.25 < shares[1].item() < 0.67


def test_mix_multi_distributions_chooses_per_instance():
    """Of the eleven kinds, nine touch all four sides, the Gaussian two at least, uniform none."""
    assert len(MULTI_DISTRIBUTION_PAIRS) == 11
    points = make("mix_multi_distributions").sample(torch.Size([2200, 30, 2]), seeded())
    touches = ((points.amin(1) == 0) & (points.amax(1) == 1)).all(-1).float().mean().item()
    assert touches == pytest.approx(9 / 11, abs=0.03)
    uniform = ((points > 0) & (points < 1)).flatten(1).all(-1).float().mean().item()
    assert uniform == pytest.approx(1 / 11, abs=0.03)


# ---------------------------------------------------------------- torch distributions and own code


def test_torch_classes_take_bounds_and_prefixed_options():
    """`Uniform` gets low and high, `Normal` its options, other classes their own parameters."""
    assert get_sampler("x", Uniform, 2.0, 3.0) == get_sampler("x", "uniform", 2.0, 3.0)
    normal = get_sampler("x", Normal, x_mean=7.0, x_std=0.0)
    assert (normal.sample(torch.Size([5])) == 7).all()
    gamma = get_sampler("x", Gamma, x_concentration=4.0, rate=2.0)
    assert gamma.sample(torch.Size([20_000]), seeded()).mean().item() == pytest.approx(2, abs=0.04)


def test_axes_of_a_torch_distribution_come_last():
    """A distribution over points gives points; one of another shape is rejected."""
    sampler = get_sampler("loc", MultivariateNormal(torch.tensor([5.0, -5.0]), torch.eye(2)))
    points = sampler.sample(torch.Size([3, 400, 2]), seeded())
    assert points.mean((0, 1)).tolist() == pytest.approx([5, -5], abs=0.2)
    boxes = get_sampler("loc", Uniform(torch.zeros(2), torch.tensor([1.0, 9.0])))
    assert boxes.sample(torch.Size([500, 2]), seeded()).amax(0).tolist() == pytest.approx(
        [1, 9], abs=0.1
    )
    with pytest.raises(ConfigError, match=r"shape \[2\]"):
        sampler.sample(torch.Size([3, 4]))


def test_double_precision_of_foreign_code_is_reduced():
    """Instances are float32 throughout."""
    zero, one = torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64)
    assert get_sampler("x", Uniform(zero, one)).sample(torch.Size([2])).dtype == torch.float32
    own = get_sampler("x", lambda size: torch.zeros(size, dtype=torch.float64))
    assert own.sample(torch.Size([2])).dtype == torch.float32


def test_objects_with_sample_are_samplers():
    """With `(size, rng)` they are used as they are, with `(size)` they are wrapped."""

    class WithRng:
        def sample(self, size, rng=None):
            return torch.rand(size, generator=rng)

    class WithoutRng:
        def sample(self, size):
            return torch.rand(size)

    sampler = WithRng()
    assert get_sampler("x", sampler) is sampler
    for distribution in (WithRng, WithoutRng(), WithoutRng, partial(Uniform, low=0.0, high=1.0)):
        wrapped = get_sampler("x", distribution)
        first, second = (wrapped.sample(torch.Size([3]), seeded()) for _ in range(2))
        assert torch.equal(first, second)


def test_factory_gets_its_options():
    """A factory with named parameters is checked, one with **kwargs takes everything."""

    def named(scale: float = 1.0):
        return Uniform(0.0, scale)

    def anything(**kwargs):
        return Uniform(0.0, kwargs["scale"])

    for factory in (named, anything):
        values = get_sampler("x", factory, scale=10.0).sample(torch.Size([1000]), seeded())
        assert values.max() > 9
    with pytest.raises(UnknownArgumentError, match="'scael'; did you mean 'scale'"):
        get_sampler("x", named, scael=10.0)


def test_function_with_wrong_result_is_rejected():
    """Shape and type are checked where the function is called."""
    with pytest.raises(ConfigError, match=r"shape \[3, 2\], got \[2\]"):
        get_sampler("x", lambda size: torch.zeros(2)).sample(torch.Size([3, 2]))
    with pytest.raises(ConfigError, match="got list"):
        get_sampler("x", lambda size: [0.0]).sample(torch.Size([1]))


# ---------------------------------------------------------------- options


def test_unknown_name_suggests_the_nearest():
    """A typo is answered with the name that was meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'uniform'"):
        get_sampler("loc", "unifrom")


@pytest.mark.parametrize(
    ("distribution", "options", "message"),
    [
        ("normal", {"loc_mean": 0.5}, "loc_std"),
        ("exponential", {}, "loc_rate"),
        ("gaussian_mixture", {"num_modes": 3}, "loc_cdist"),
        ("normal", {"loc_mean": 0.5, "loc_std": -1.0}, "std >= 0"),
        ("exponential", {"loc_rate": 0.0}, "rate > 0"),
        ("poisson", {"loc_rate": -1.0}, "rate > 0"),
        ("beta", {"loc_alpha": 1.0, "loc_beta": 0.0}, "beta > 0"),
        ("cluster", {"n_cluster": 0}, "n_cluster to be an integer >= 1"),
        ("cluster", {"n_cluster": 2.5}, "n_cluster to be an integer >= 1"),
        ("mixed", {"n_cluster_mix": 0}, "n_cluster_mix"),
        ("gaussian_mixture", {"num_modes": -1, "cdist": 1}, "num_modes"),
        ("mix_distribution", {"n_cluster": 0}, "n_cluster"),
        (Gamma, {"concentration": -1.0, "rate": 1.0}, "Gamma"),
        (None, {}, "got None"),
        ([1, 2], {}, r"got \[1, 2\]"),
    ],
)
def test_bad_options_are_rejected(distribution, options, message):
    """Missing and impossible options raise and name themselves."""
    with pytest.raises(ConfigError, match=message):
        get_sampler("loc", distribution, **options)


def test_unknown_options_are_rejected():
    """With those that the distribution has."""
    with pytest.raises(UnknownArgumentError, match=r"'loc_mean'; known: \(none\)"):
        get_sampler("loc", 3.0, loc_mean=0.5)
    with pytest.raises(UnknownArgumentError, match=r"'loc_mean'; known: \(none\)"):
        get_sampler("loc", "uniform", loc_mean=0.5)
    with pytest.raises(UnknownArgumentError, match="'n_clusters'; did you mean 'n_cluster'"):
        get_sampler("loc", "cluster", n_clusters=3)
    with pytest.raises(UnknownArgumentError, match="of loc 'loc_men'; did you mean 'loc_mean'"):
        get_sampler("loc", "normal", loc_men=0.5, loc_std=1.0)


def test_low_above_high_is_rejected():
    """An empty interval has no values."""
    with pytest.raises(ConfigError, match="low <= high"):
        get_sampler("loc", "uniform", 1.0, 0.0)


def test_build_samplers_shares_out_options():
    """Prefixed options go to one sampler and win; plain ones go to all that take them."""
    samplers = build_samplers(
        {"std": 0.0, "mean": 1.0, "depot_mean": 2.0},
        loc=SamplerSpec("normal"),
        depot=SamplerSpec("normal"),
        demand=SamplerSpec("uniform"),
        nothing=None,
    )
    assert set(samplers) == {"loc", "depot", "demand"}
    assert samplers["loc"].sample(torch.Size([1])).item() == 1
    assert samplers["depot"].sample(torch.Size([1])).item() == 2
    with pytest.raises(UnknownArgumentError, match="distributions of loc, demand 'demand_mean'"):
        build_samplers(
            {"std": 0.0, "mean": 1.0, "demand_mean": 1.0},
            loc=SamplerSpec("normal"),
            demand=SamplerSpec("uniform"),
        )


def test_clipping_concerns_named_distributions_only():
    """A named normal is kept in the interval, a torch object is the user's own business."""
    options = {"x_mean": 0.5, "x_std": 5.0}
    named = build_samplers(options, x=SamplerSpec("normal", clip=True))["x"]
    assert isinstance(named, ClippedSampler)
    values = named.sample(torch.Size([100]), seeded())
    assert values.min() == 0
    assert values.max() == 1
    own = build_samplers({}, x=SamplerSpec(Normal(0.5, 5.0), clip=True))["x"]
    assert own.sample(torch.Size([100]), seeded()).abs().max() > 1


def test_integer_specs_round_down_and_exclude_the_upper_end():
    """Uniform on [1, 4) gives 1, 2, 3 equally often; a constant is only rounded down."""
    drawn = build_samplers({}, x=SamplerSpec("uniform", 1, 4, integer=True))["x"]
    values, counts = drawn.sample(torch.Size([30_000]), seeded()).unique(return_counts=True)
    assert values.tolist() == [1, 2, 3]
    assert (counts / 30_000 - 1 / 3).abs().max() < 0.015
    # A draw that rounding has put on the excluded end itself.
    edge = build_samplers(
        {"x_mean": 4.0, "x_std": 0.0}, x=SamplerSpec("normal", 1, 4, integer=True)
    )
    assert edge["x"].sample(torch.Size([1])).item() == 3
    constant = build_samplers({}, x=SamplerSpec(7.9, 1, 4, integer=True))["x"]
    assert constant.sample(torch.Size([1])).item() == 7
