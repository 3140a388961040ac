"""OP: exhaustive oracles, prizes, the length limit, starts out of reach, plots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.rng import derive_generator
from rl4co.envs import OPEnv, OPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.rendering import MUTED, ROUTE_COLORS
from tests.unit.envs.routing_oracle import (
    allowed_solutions,
    count_steps,
    distances_of,
    euclidean,
    round_trip,
)


def make_instance(points: np.ndarray, prize: np.ndarray, max_length: float) -> TensorDict:
    tensors = {
        "depot": torch.as_tensor(points[0], dtype=torch.float32),
        "locs": torch.as_tensor(points[1:], dtype=torch.float32),
        "prize": torch.as_tensor(prize, dtype=torch.float32),
        "max_length": torch.tensor(max_length),
    }
    return TensorDict(tensors, batch_size=[])


def feasible_tours(distances: np.ndarray, max_length: float) -> set[tuple[int, ...]]:
    """All orders of all sets of customers with a way back from every one of them."""
    customers = range(1, len(distances))

    def is_short(order: tuple[int, ...]) -> bool:
        return round_trip(distances, order) <= max_length

    return {
        (*order, 0)
        for count in range(len(distances))
        for order in itertools.permutations(customers, count)
        if all(is_short(order[:stop]) for stop in range(count + 1))
    }


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_loc", [1, 3, 5])
def test_mask_allows_exactly_the_short_tours(num_loc: int, seed: int):
    """Neither more nor less than exhaustive search; the best prize is among them."""
    rng = np.random.default_rng(seed)
    points, prize = rng.random((num_loc + 1, 2)), rng.random(num_loc)
    expected = feasible_tours(euclidean(points), 1.7)
    prizes = {tour: sum(prize[node - 1] for node in tour if node) for tour in expected}
    allowed = allowed_solutions(OPEnv(), make_instance(points, prize, 1.7))
    assert allowed == pytest.approx(prizes, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_one_way_matrix(seed: int):
    """Both directions of every leg count where they are travelled."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((5, 5)).astype(np.float32)
    instance = make_instance(np.zeros((5, 2)), rng.random(4), 1.2)
    instance = instance.exclude("locs", "depot").set("cost_matrix", torch.from_numpy(matrix))
    expected = feasible_tours(matrix.astype(np.float64), 1.2)
    assert 3 < len(expected) < 60
    assert set(allowed_solutions(OPEnv(), instance)) == expected


@given(seed=st.integers(min_value=0, max_value=2**32), max_length=st.floats(0.0, 4.0))
def test_random_rollouts(seed: int, max_length: float):
    """Prize and length by independent code; the tour stays within its length."""
    env = OPEnv(OPGenerator(num_loc=8, max_length=max_length))
    rng = derive_generator(seed)
    episode = record_episode(env, env.generator([2, 2], rng=rng), rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True).flatten()
    instances = episode.instances.reshape(-1)
    for b, actions in enumerate(episode.actions.reshape(4, -1).tolist()):
        length = round_trip(distances_of(instances[b]), actions)
        assert length <= max_length + 1e-6
        prize = sum(float(instances["prize"][b, node - 1]) for node in actions if node)
        assert float(reward[b]) == pytest.approx(prize, abs=1e-5)
        assert float(episode.states[-1]["tour_length"].flatten()[b]) == pytest.approx(
            length, abs=1e-5
        )


# ---------------------------------------------------------------- stepping


def test_state_follows_the_tour():
    """Length so far, the budget of every node, and the mask on the way and after it."""
    points = np.array([[0, 0], [3, 0], [3, 4], [0, 4], [0, 6.3]], dtype=float)
    env = OPEnv()
    td = env.reset(make_instance(points, np.ones(4), 12.5).unsqueeze(0))
    # Out and back: 6, 10, 8 and 12.6, which is too far.
    assert td["action_mask"][0].tolist() == [True, True, True, True, False]
    assert td["length_limit"][0].tolist() == pytest.approx([12.5, 9.5, 7.5, 8.5, 6.2], abs=1e-5)
    script = [
        (1, 3.0, [True, False, True, True, False], False),  # 3 + 5 + 4 is 12
        (2, 7.0, [True, False, False, False, False], False),  # 7 + 3 + 4 is 14
        (0, 12.0, [True, False, False, False, False], True),
        (0, 12.0, [True, False, False, False, False], True),  # waits at the depot
    ]
    for action, length, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["tour_length"].item() == pytest.approx(length)
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done
        assert td["current_node"].item() == action


def test_margin_decides_on_exact_lengths():
    """By default a tour must be a little shorter than allowed, as in the original code."""
    points = np.array([[0, 0], [3, 0], [3, 4]], dtype=float)
    instance = make_instance(points, np.ones(2), 12.0).unsqueeze(0)
    for margin, allowed in ((1e-6, False), (0.0, True), (-1e-4, True), (1e-2, False)):
        env = OPEnv(length_margin=margin)
        td = env.step(env.reset(instance).set("action", torch.tensor([1])))["next"]
        assert td["action_mask"][0, 2].item() is allowed
        # No matter what the mask says, such a tour is valid.
        env.check_solution_validity(td, torch.tensor([[1, 2, 0]]))
    with pytest.raises(ConfigError, match="length_margin"):
        OPEnv(length_margin=float("nan"))


def test_length_differs_between_instances():
    env = OPEnv(OPGenerator(num_loc=3))
    td = env.generate(2)
    td["locs"] = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]).expand(2, 3, 2)
    td["depot"] = torch.zeros(2, 2)
    td["max_length"] = torch.tensor([2.5, 4.5])
    assert env.reset(td)["action_mask"].tolist() == [
        [True, True, False, False],
        [True, True, True, False],
    ]


def test_step_bounds_are_reached():
    for max_length, bound in ((0.0, 0), (99.0, 1)):
        env = OPEnv(OPGenerator(num_loc=7, max_length=max_length))
        # Customers first: the depot only when nothing else is allowed.
        steps, bounds = count_steps(env, env.generate(3), last=True)
        assert steps == bounds[bound]


def test_starts_within_reach_take_turns():
    """Customers too far away are no starts; going home is one only if there is no other."""
    env = OPEnv(OPGenerator(num_loc=4))
    td = env.generate(3)
    td["depot"] = torch.zeros(3, 2)
    td["locs"] = torch.tensor(
        [
            [[9.0, 0.0], [0.5, 0.0], [9.0, 0.0], [0.6, 0.0]],
            [[0.1, 0.0], [0.5, 0.0], [0.2, 0.0], [0.6, 0.0]],
            [[9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]],
        ]
    )
    td = env.reset(td)
    assert env.get_num_starts(td) == 4
    starts = env.select_start_nodes(td, 4).view(4, 3).t()
    assert starts.tolist() == [[2, 4, 2, 4], [1, 2, 3, 4], [0, 0, 0, 0]]
    assert env.select_start_nodes(td[:1], 1).tolist() == [2]
    assert [env.get_num_starts(td[b : b + 1]) for b in range(3)] == [2, 4, 1]


def test_a_fixed_number_of_starts_fits_every_batch():
    """What one batch can offer is no limit: others repeat theirs."""
    env = OPEnv(OPGenerator(num_loc=4))
    near, far = env.generate(2), env.generate(2)
    near["max_length"], far["max_length"] = torch.full((2,), 9.0), torch.full((2,), 0.0)
    for instances, distinct in ((near, 4), (far, 1)):
        td = env.reset(instances)
        assert env.get_num_starts(td) == distinct
        assert len(set(env.start_actions(dict(td.items()), 4)[0].tolist())) == distinct
    with pytest.raises(ConfigError, match="1 to 4 starts for op, got 5"):
        env.select_start_nodes(env.reset(near), 5)


def test_starts_repeat_only_when_all_are_used():
    """Of 20 customers about one in seven is too far away in one of 64 instances."""
    env = OPEnv(OPGenerator(num_loc=20), seed=0)
    td = env.reset(batch_size=64)
    count = env.get_num_starts(td)
    allowed = td["action_mask"][:, 1:].sum(-1)
    assert count == allowed.max() > allowed.min()
    for starts, most in zip(env.start_actions(dict(td.items()), count), allowed, strict=True):
        assert len(set(starts.tolist())) == most


# ---------------------------------------------------------------- instances


@pytest.mark.parametrize(
    ("num_loc", "length"),
    [(20, 2.0), (50, 3.0), (100, 4.0), (5, 2.0), (34, 2.0), (36, 3.0), (500, 4.0)],
)
def test_default_length(num_loc: int, length: float):
    """That of the literature, or of the nearest size in it."""
    td = OPGenerator(num_loc=num_loc)(2)
    assert td["max_length"].tolist() == [length, length]
    assert OPGenerator(num_loc=num_loc, max_length=0.5)([])["max_length"].item() == 0.5


def test_lengths_by_instance():
    lengths = torch.tensor([1.0, 2.0, 3.0])
    generator = OPGenerator(max_length=lengths)
    assert OPEnv(generator).reset(batch_size=3)["max_length"].flatten().tolist() == [1.0, 2.0, 3.0]
    assert generator([])["max_length"].item() == 1.0
    with pytest.raises(ConfigError, match=r"one for each of \[2\] instances, got \[3\]"):
        generator(2)
    with pytest.raises(ConfigError, match="max_length >= 0"):
        OPGenerator(max_length=-1.0)


def test_constant_prizes():
    td = OPGenerator(prize_type="const")([2, 3])
    assert bool((td["prize"] == 1).all())
    assert td["prize"].shape == (2, 3, 20)


def test_uniform_prizes():
    """Hundredths from 0.01 to 1, all of them, equally often."""
    prize = OPGenerator(prize_type="unif")(2000, rng=derive_generator(0))["prize"] * 100
    counts = torch.bincount(prize.round().long().flatten())
    torch.testing.assert_close(prize, prize.round(), atol=1e-4, rtol=0)
    assert counts[0] == 0
    assert len(counts) == 101
    assert 320 < counts[1:].min() <= counts[1:].max() < 480  # 400 +- 20 each


def test_prizes_by_distance():
    """The formula of Fischetti et al., by NumPy; rounding may move a value by one hundredth."""
    td = OPGenerator(num_loc=50)(100, rng=derive_generator(1))
    locs, depot = td["locs"].double().numpy(), td["depot"].double().numpy()
    distance = np.linalg.norm(locs - depot[:, None], axis=-1)
    expected = (1 + np.floor(distance / distance.max(-1, keepdims=True) * 99)) / 100
    difference = np.abs(td["prize"].numpy() - expected)
    assert np.isclose(difference, 0, atol=1e-6).mean() > 0.999
    assert difference.max() < 0.0101
    assert (td["prize"].amax(-1) == 1).all()
    assert td["prize"].min() >= 0.01


def test_customers_at_the_depot_have_the_smallest_prize():
    td = OPGenerator(loc_distribution="center", depot_distribution="center")(2)
    assert bool((td["prize"] == 0.01).all())


def test_prize_distribution_replaces_the_type():
    td = OPGenerator(prize_distribution="uniform", min_prize=5.0, max_prize=6.0)(50)
    assert 5.0 <= td["prize"].min() < 5.1
    assert 5.9 < td["prize"].max() <= 6.0
    assert bool((OPGenerator(prize_distribution=0.25)(2)["prize"] == 0.25).all())


def test_prize_type_of_the_environment():
    """A short way to the generator's argument, and rejected next to a generator."""
    assert bool((OPEnv(prize_type="const").generate(3)["prize"] == 1).all())
    env = OPEnv(generator_params={"num_loc": 5}, prize_type="unif")
    assert (env.generator.num_loc, env.generator.prize_type) == (5, "unif")
    with pytest.raises(ConfigError, match="got both"):
        OPEnv(OPGenerator(), prize_type="unif")
    with pytest.raises(UnknownNameError, match="did you mean 'const'"):
        OPEnv(prize_type="konst")


# ---------------------------------------------------------------- plots


def test_plot():
    """The tour as a line, visited customers in its colour, the others grey; the title counts."""
    points = np.array([[0, 0], [3, 0], [3, 4], [0, 4]], dtype=float)
    env = OPEnv()
    td = env.reset(make_instance(points, np.array([0.25, 0.5, 1.0]), 12.5).unsqueeze(0))
    figure = env.render(td, torch.tensor([[1, 2, 0, 0]]))
    axes = figure.axes[0]
    assert axes.get_title() == "2 of 3 customers · prize 0.750 · length 12.000 of 12.5"
    (line,) = axes.get_lines()
    assert np.asarray(line.get_xydata()).tolist() == points[[0, 1, 2, 0]].tolist()
    nodes = next(c for c in axes.collections if c.get_zorder() == 4)
    colors = [to_hex(color) for color in nodes.get_facecolors()]
    assert colors == [ROUTE_COLORS[0], ROUTE_COLORS[0], MUTED]
    sizes = nodes.get_sizes()
    assert sizes[0] < sizes[1] < sizes[2]
    assert env.render(td).axes[0].get_title() == "3 customers · at most 12.5 long"
    partial = env.render(td, torch.tensor([[1, 2]])).axes[0]
    assert len(np.asarray(partial.get_lines()[0].get_xydata())) == 3, "not closed yet"
