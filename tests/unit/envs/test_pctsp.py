"""PCTSP: exhaustive oracles, the required prize, generated prizes and penalties, plots."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.core.rng import derive_generator
from rl4co.envs import PCTSPEnv, PCTSPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.rendering import ACCENT, MUTED, ROUTE_COLORS
from tests.unit.envs.routing_oracle import (
    allowed_solutions,
    count_steps,
    distances_of,
    euclidean,
    round_trip,
)


def random_instance(
    num_loc: int, seed: int, required: float = 1.0
) -> tuple[TensorDict, np.ndarray, np.ndarray, np.ndarray]:
    """An instance, its prizes and penalties, and its distances `[N, N]`."""
    rng = np.random.default_rng(seed)
    points = rng.random((num_loc + 1, 2))
    prize, penalty = rng.uniform(0.2, 1.0, num_loc), rng.random(num_loc)
    prize *= max(1.0, 1.01 * required / prize.sum())
    arrays = {
        "depot": points[0],
        "locs": points[1:],
        "penalty": penalty,
        "deterministic_prize": prize,
        "stochastic_prize": prize[::-1].copy(),
        "prize_required": np.array(required),
    }
    tensors = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in arrays.items()}
    return TensorDict(tensors, batch_size=[]), prize, penalty, euclidean(points)


def tours(prize: np.ndarray, required: float) -> set[tuple[int, ...]]:
    """All orders of all sets of customers that are worth enough, or of all customers."""
    customers = range(1, len(prize) + 1)
    return {
        (*order, 0)
        for count in range(len(prize) + 1)
        for order in itertools.permutations(customers, count)
        if sum(prize[node - 1] for node in order) >= required or count == len(prize)
    }


def tour_cost(tour: tuple[int, ...], penalty: np.ndarray, distances: np.ndarray) -> float:
    left_out = (p for node, p in enumerate(penalty, start=1) if node not in tour)
    return round_trip(distances, tour) + sum(left_out)


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("required", [0.0, 1.0, 1.7])
@pytest.mark.parametrize("num_loc", [1, 2, 4])
def test_mask_allows_exactly_the_tours_worth_enough(num_loc: int, required: float, seed: int):
    """Neither more nor less than exhaustive search; the cheapest is among them."""
    instance, prize, penalty, distances = random_instance(num_loc, seed, required)
    costs = {tour: -tour_cost(tour, penalty, distances) for tour in tours(prize, required)}
    assert allowed_solutions(PCTSPEnv(), instance) == pytest.approx(costs, rel=1e-5)


@given(seed=st.integers(min_value=0, max_value=2**32), required=st.floats(0.0, 2.5))
def test_random_rollouts(seed: int, required: float):
    """Costs and prizes by independent code."""
    env = PCTSPEnv(PCTSPGenerator(num_loc=6, prize_required=required))
    rng = derive_generator(seed)
    episode = record_episode(env, env.generator([2, 2], rng=rng), rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True).flatten()
    instances = episode.instances.reshape(-1)
    for b, actions in enumerate(episode.actions.reshape(4, -1).tolist()):
        distances = distances_of(instances[b])
        penalty = instances["penalty"][b].double().numpy()
        expected = tour_cost(tuple(actions), penalty, distances)
        assert -float(reward[b]) == pytest.approx(expected, abs=1e-5)
        prize = instances["deterministic_prize"][b].double().numpy()
        collected = sum(prize[node - 1] for node in set(actions) - {0})
        assert collected >= required - 1e-5 or set(actions) >= set(range(1, 7))


# ---------------------------------------------------------------- stepping


def test_state_follows_the_tour():
    """What is collected, and when the depot opens."""
    instance, *_ = random_instance(3, seed=0)
    instance["deterministic_prize"] = torch.tensor([0.5, 0.25, 0.75])
    env = PCTSPEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["action_mask"][0].tolist() == [False, True, True, True]
    script = [
        (1, 0.5, [False, False, True, True], False),
        (3, 1.25, [True, False, True, False], False),  # enough, but there is more
        (0, 1.25, [True, False, False, False], True),
        (0, 1.25, [True, False, False, False], True),  # waits at the depot
    ]
    for action, collected, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["cur_total_prize"].item() == pytest.approx(collected)
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done
        assert td["current_node"].item() == action


def test_required_prize_differs_between_instances():
    """And 1 where an instance does not say."""
    env = PCTSPEnv(PCTSPGenerator(num_loc=3))
    td = env.generate(3)
    td["deterministic_prize"] = torch.full((3, 3), 0.5)
    td["prize_required"] = torch.tensor([0.5, 1.0, 1.5])

    def open_after(instances: TensorDict) -> list[list[bool]]:
        state, opened = env.reset(instances), []
        for node in (1, 2, 3):
            opened.append(state["action_mask"][:, 0].tolist())
            state = env.step(state.set("action", torch.full((3,), node)))["next"]
        return [*opened, state["action_mask"][:, 0].tolist()]

    assert open_after(td) == [
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    assert open_after(td.exclude("prize_required"))[1:] == [[False] * 3, [True] * 3, [True] * 3]


def test_prizes_that_add_up_exactly():
    """0.45 + 0.35 + 0.2 is less than 1 in float32; the option of the original code shows it."""
    assert np.float32(0.45) + np.float32(0.35) + np.float32(0.2) < 1
    instance, *_ = random_instance(4, seed=0)
    instance["deterministic_prize"] = torch.tensor([0.45, 0.35, 0.2, 0.5])
    for tolerance, enough in ((1e-6, True), (0.0, False)):
        env = PCTSPEnv(prize_tolerance=tolerance)
        td = env.reset(instance.unsqueeze(0))
        for node in (1, 2, 3):
            td = env.step(td.set("action", torch.tensor([node])))["next"]
        assert td["action_mask"][0, 0].item() is enough
        env.check_solution_validity(td, torch.tensor([[1, 2, 3, 0]]))
    with pytest.raises(ConfigError, match="prize_tolerance"):
        PCTSPEnv(prize_tolerance=-0.1)


def test_unchecked_instances_that_are_not_worth_enough_end():
    """Without checks, visiting every customer is enough."""
    env = PCTSPEnv(PCTSPGenerator(num_loc=4), check_instance=False)
    td = env.generate(3)
    td["deterministic_prize"] *= 0.01
    episode = record_episode(env, td, derive_generator(0))
    assert episode.complete
    assert episode.lengths == [5, 5, 5]
    env.check_solution_validity(episode.initial, episode.actions)


def test_stochastic_prizes_play_no_role():
    """They may be missing, and change nothing."""
    env = PCTSPEnv(PCTSPGenerator(num_loc=5))
    td = env.generate(4)
    episodes = [
        record_episode(env, instances, derive_generator(1))
        for instances in (td, td.exclude("stochastic_prize"))
    ]
    assert torch.equal(episodes[0].actions, episodes[1].actions)
    rewards = [env.get_reward(e.initial, e.actions) for e in episodes]
    assert torch.equal(*rewards)


@pytest.mark.parametrize(("required", "bound"), [(0.0, 0), (1.5, 1)])
def test_step_bounds_are_reached(required: float, bound: int):
    """The depot as soon as it opens."""
    env = PCTSPEnv(PCTSPGenerator(num_loc=5))
    td = env.generate(2)
    td["deterministic_prize"] = torch.full((2, 5), 0.3)
    td["prize_required"] = torch.full((2,), required)
    steps, bounds = count_steps(env, td)
    assert steps == bounds[bound]


# ---------------------------------------------------------------- instances


@pytest.mark.parametrize(
    ("num_loc", "length"), [(20, 2.0), (50, 3.0), (100, 4.0), (10, 2.0), (70, 3.0), (1000, 4.0)]
)
def test_generated_values(num_loc: int, length: float):
    """Uniform prizes on [0, 4 / n] and penalties on [0, 3 L / n], as in the literature."""
    td = PCTSPGenerator(num_loc=num_loc)(20_000 // num_loc, rng=derive_generator(num_loc))
    for key, top in (("deterministic_prize", 4 / num_loc), ("penalty", 3 * length / num_loc)):
        values = td[key] / top
        assert 0 <= values.min() < 0.01
        assert values.max() > 0.99
        assert values.mean().item() == pytest.approx(0.5, abs=0.01)
        assert values.std().item() == pytest.approx(12**-0.5, abs=0.01)
    assert td["penalty"].max() <= 3 * length / num_loc
    assert td["prize_required"].tolist() == [1.0] * len(td)


def test_penalties_follow_their_factor():
    td = PCTSPGenerator(num_loc=20, penalty_factor=6.0, max_penalty=5.0)(500)
    assert 1.45 < td["penalty"].max() <= 6.0 * 5.0 / 20
    constant = PCTSPGenerator(num_loc=20, penalty_distribution=0.25, prize_distribution=0.5)(2)
    assert bool((constant["penalty"] == 0.25).all())
    assert bool((constant["deterministic_prize"] == 0.5).all())


@pytest.mark.parametrize("num_loc", [1, 2, 5])
def test_few_customers_are_worth_enough(num_loc: int):
    """Their prizes are scaled up where they are not; the others are left alone."""
    generator = PCTSPGenerator(num_loc=num_loc)
    td = generator(2000, rng=derive_generator(3))
    total = td["deterministic_prize"].sum(-1)
    assert total.min() > 1 - 1e-5
    raised = (total < 1 + 1e-5).float().mean().item()
    # P(U_1 + ... + U_n < n / 4) = (n / 4)^n / n! as long as n / 4 <= 1, by volume.
    expected = {1: 0.25, 2: 0.125, 5: 0.0246}[num_loc]
    assert raised == pytest.approx(expected, abs=0.02)
    PCTSPEnv(generator).reset(td)


def test_required_prize_of_the_generator_reaches_the_mask():
    env = PCTSPEnv(generator_params={"num_loc": 8, "prize_required": 0.0})
    assert bool(env.reset(batch_size=3)["action_mask"].all())
    env = PCTSPEnv(generator_params={"num_loc": 8, "prize_required": 3.0})
    state = env.reset(batch_size=3)
    assert state["prize_required"].flatten().tolist() == [3.0] * 3
    assert not bool(state["action_mask"][:, 0].any())


# ---------------------------------------------------------------- plots


def test_plot():
    """The tour, what is left out in the colour of its penalty, and all parts of the cost."""
    points = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0], [0.0, 4.0], [1.0, 1.0]])
    instance = {
        "depot": points[0],
        "locs": points[1:],
        "deterministic_prize": torch.tensor([0.5, 0.75, 0.25, 0.25]),
        "penalty": torch.tensor([1.0, 1.0, 4.0, 0.0]),
    }
    env = PCTSPEnv()
    td = env.reset(TensorDict(instance, batch_size=[]).unsqueeze(0))
    axes = env.render(td, torch.tensor([[1, 2, 0, 0]])).axes[0]
    assert axes.get_title() == "2 of 4 customers · cost 16.000"
    notes = [text.get_text() for text in axes.texts]
    assert "length 12.000 + penalties 4.000 · prize 1.250 of 1" in notes
    nodes = next(c for c in axes.collections if c.get_zorder() == 4)
    colors = [to_hex(color) for color in nodes.get_facecolors()]
    assert colors == [ROUTE_COLORS[0], ROUTE_COLORS[0], ACCENT, MUTED]
    assert env.render(td).axes[0].get_title() == "4 customers · prize 1 required"
