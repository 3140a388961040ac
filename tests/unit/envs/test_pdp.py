"""PDP: exhaustive oracles, the forced start, real instances, instances and their generator."""

from __future__ import annotations

import itertools
import math

from pathlib import Path

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    InvalidSolutionError,
)
from rl4co.core.rng import derive_generator
from rl4co.data.formats import read_instance
from rl4co.envs import PDPEnv, PDPGenerator
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.testing import enumerate_solutions
from rl4co.models import POMO, AttentionModelPolicy
from tests.unit.envs.routing_oracle import allowed_solutions, distances_of, euclidean, round_trip


def random_points(num_loc: int, seed: int) -> tuple[TensorDict, np.ndarray]:
    """An instance without batch axis and its distances `[N, N]`."""
    points = np.random.default_rng(seed).random((num_loc + 1, 2))
    instance = {"depot": points[0], "locs": points[1:]}
    tensors = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in instance.items()}
    return TensorDict(tensors, batch_size=[]), euclidean(points)


def random_matrix(num_loc: int, seed: int) -> tuple[TensorDict, np.ndarray]:
    """An instance given by an asymmetric matrix alone."""
    matrix = np.random.default_rng(seed).random((num_loc + 1, num_loc + 1))
    tensors = {"cost_matrix": torch.as_tensor(matrix, dtype=torch.float32)}
    return TensorDict(tensors, batch_size=[]), matrix


def feasible_tours(num_loc: int) -> list[tuple[int, ...]]:
    """All orders of 1 ... n in which node i comes before node i + n/2."""
    half = num_loc // 2
    return [
        order
        for order in itertools.permutations(range(1, num_loc + 1))
        if all(order.index(i) < order.index(i + half) for i in range(1, half + 1))
    ]


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("make", [random_points, random_matrix])
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("num_loc", [2, 4, 6])
def test_mask_allows_exactly_the_feasible_tours(num_loc: int, forced: bool, make):
    """n! / 2^(n/2) tours; each passes the check at the cost of independent code."""
    instance, distances = make(num_loc, seed=num_loc)
    env = PDPEnv(force_start_at_depot=forced)
    tours, start = feasible_tours(num_loc), (0,) if forced else ()
    assert len(tours) == math.factorial(num_loc) // 2 ** (num_loc // 2)
    expected = {(*start, *tour): -round_trip(distances, tour) for tour in tours}
    assert allowed_solutions(env, instance) == pytest.approx(expected, rel=1e-5)


def test_check_rejects_exactly_the_infeasible_orders():
    """All 24 orders of two pairs, one by one."""
    instance, _ = random_points(4, seed=0)
    env = PDPEnv()
    td, feasible = env.reset(instance.unsqueeze(0)), set(feasible_tours(4))
    for order in itertools.permutations(range(1, 5)):
        actions = torch.tensor([order])
        if order in feasible:
            env.check_solution_validity(td, actions)
            continue
        with pytest.raises(InvalidSolutionError) as caught:
            env.check_solution_validity(td, actions)
        assert caught.value.constraint == "every pickup precedes its delivery"


@given(
    pairs=st.integers(min_value=1, max_value=8),
    batch=st.sampled_from([(), (1,), (3,), (2, 2)]),
    forced=st.booleans(),
    matrix=st.booleans(),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_rollouts(pairs: int, batch: tuple[int, ...], forced: bool, matrix: bool, seed: int):
    """They take the number of steps that is known, are valid, and cost what NumPy says."""
    rng = derive_generator(seed)
    env = PDPEnv(PDPGenerator(num_loc=2 * pairs), force_start_at_depot=forced)
    instances = env.generator(batch, rng=rng)
    if matrix:
        instances["cost_matrix"] = torch.rand(*batch, *[2 * pairs + 1] * 2, generator=rng)
    episode = record_episode(env, instances, rng)
    assert episode.complete
    assert episode.actions.shape[-1] == episode.bounds[0] == episode.bounds[1] == 2 * pairs + forced
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    assert reward.shape == batch
    rows = episode.actions.reshape(-1, episode.actions.shape[-1]).tolist()
    for instance, actions, own in zip(
        instances.reshape(-1), rows, reward.flatten().tolist(), strict=True
    ):
        distances = instance["cost_matrix"].double().numpy() if matrix else distances_of(instance)
        assert own == pytest.approx(-round_trip(distances, actions[forced:]), rel=1e-5, abs=1e-6)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_tour():
    """Visits and released deliveries, step by step."""
    env = PDPEnv()
    td = env.reset(random_points(4, seed=1)[0].unsqueeze(0))
    assert td["locs"].shape == (1, 5, 2)
    assert td["action_mask"][0].tolist() == [False, True, True, False, False]
    script = [
        (2, [0, 1, 0, 0, 1], False),  # delivery 4 is released
        (4, [0, 1, 0, 0, 0], False),
        (1, [0, 0, 0, 1, 0], False),
        (3, [0, 0, 0, 1, 0], True),  # the last node changes nothing
    ]
    for action, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["action_mask"][0].int().tolist() == allowed
        assert td["done"].item() is done
        assert td["current_node"].item() == action
    assert td["available"][0].tolist() == [False, False, False, True, False]
    assert td["to_deliver"].all()


def test_forced_start_is_a_step():
    """Nothing but the depot is allowed at first, and never again."""
    env = PDPEnv(force_start_at_depot=True, check_action=True)
    td = env.reset(random_points(4, seed=1)[0].unsqueeze(0))
    assert td["action_mask"][0].tolist() == [True, False, False, False, False]
    with pytest.raises(InvalidActionError):
        env.step(td.copy().set("action", torch.tensor([1])))
    td = env.step(td.set("action", torch.tensor([0])))["next"]
    assert td["action_mask"][0].tolist() == [False, True, True, False, False]


def test_starts_come_behind_the_forced_start():
    """Every tour begins with the step at the depot, then with a pickup of its own."""
    env = PDPEnv(PDPGenerator(num_loc=6), force_start_at_depot=True, check_action=True)
    td = env.reset(batch_size=2)
    assert env.get_num_starts(td) == 3
    assert env.select_start_nodes(td, 3).tolist() == [1, 1, 2, 2, 3, 3]
    policy = AttentionModelPolicy(env_name="pdp", embed_dim=16, num_heads=2).eval()
    out = policy(td, env, decode_type="multistart_greedy")
    assert out["actions"].shape == (6, 7)
    assert out["actions"][:, 0].tolist() == [0] * 6
    assert out["actions"][:, 1].tolist() == [1, 1, 2, 2, 3, 3]
    again = policy(td, env, decode_type="multistart_greedy", actions=out["actions"])
    torch.testing.assert_close(again["log_likelihood"], out["log_likelihood"])


def test_the_forced_start_is_no_decision():
    """Tours, rewards and likelihoods are those of the problem in which it is no step."""
    instances = PDPGenerator(num_loc=6)(4, rng=derive_generator(5))
    free, forced = PDPEnv(), PDPEnv(force_start_at_depot=True)
    policy = AttentionModelPolicy(env_name="pdp", embed_dim=16, num_heads=2).eval()
    ours, theirs = (
        policy(env.reset(instances), env, decode_type="multistart_greedy") for env in (forced, free)
    )
    assert torch.equal(ours["actions"][:, 1:], theirs["actions"])
    for key in ("reward", "log_likelihood"):
        torch.testing.assert_close(ours[key], theirs[key])


def test_pomo_trains_with_the_forced_start():
    env = PDPEnv(PDPGenerator(num_loc=6), force_start_at_depot=True)
    model = POMO(env, policy_kwargs={"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1})
    out = model.shared_step(env.generate(4), 0, "train")
    out["loss"].backward()
    assert all(bool(weight.grad.any()) for weight in model.policy.decoder.parameters())


# ---------------------------------------------------------------- real instances


def solve_exactly(matrix: np.ndarray) -> tuple[float, list[int]]:
    """Best tour by dynamic programming over sets of visited nodes (no outside optimum exists)."""
    num_loc = len(matrix) - 1
    half = num_loc // 2
    paths: dict[tuple[int, int], tuple[float, list[int]]] = {(0, 0): (0.0, [])}
    for _ in range(num_loc):
        longer: dict[tuple[int, int], tuple[float, list[int]]] = {}
        for (visited, last), (cost, tour) in paths.items():
            for node in range(1, num_loc + 1):
                ready = node <= half or visited >> (node - half) & 1
                if visited >> node & 1 or not ready:
                    continue
                key, total = (visited | 1 << node, node), cost + matrix[last, node]
                if key not in longer or total < longer[key][0]:
                    longer[key] = total, [*tour, node]
        paths = longer
    return min((cost + matrix[last, 0], tour) for (_, last), (cost, tour) in paths.items())


TSPPD = ["grubhub/grubhub-02-0", "grubhub/grubhub-04-1", "random-uniform/random-005-02153"]


@pytest.mark.parametrize("name", TSPPD)
def test_optimal_tour_of_a_real_instance(shared_dir: Path, name: str):
    """An exact solver's tour is allowed, valid and costs what the solver says, in whole units."""
    path = shared_dir / "data" / "tsppd" / f"{name}.tsp"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    instance = read_instance(path)
    best, tour = solve_exactly(instance.costs)
    env, instance = PDPEnv(check_action=True), instance.to_tensordict(normalize=False)[0]
    td = initial = env.reset(instance.unsqueeze(0))
    for action in tour:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
    assert td["done"].all()
    assert -env.get_reward(initial, torch.tensor([tour]), check_solution=True).item() == best
    if len(tour) > 8:
        return
    # Few enough orders to see that no allowed tour is cheaper.
    solutions = enumerate_solutions(env, instance)
    rewards = env.get_reward(
        env.reset(instance.expand(len(solutions))), torch.tensor(solutions), check_solution=True
    )
    assert -rewards.max().item() == best


@pytest.mark.parametrize("size", ["100", "200"])
def test_best_known_routes_of_real_instances(shared_dir: Path, size: str):
    """Each route of a Li & Lim solution is a PDP tour; together they have the listed distance."""
    files = sorted((shared_dir / "data" / "pdptw" / size).glob("*.sol"))[::7]
    if not files:
        pytest.skip("no PDPTW instances in the shared folder")
    env = PDPEnv()
    for file in files:
        instance = read_instance(file.with_suffix(".txt"))
        places = torch.as_tensor(instance.coordinates, dtype=torch.float32)
        partner, distance = dict(instance.pairs.tolist()), 0.0
        for route in instance.best_solution:
            pickups = [node for node in route if node in partner]
            nodes = [*pickups, *(partner[node] for node in pickups)]
            one = TensorDict({"depot": places[0], "locs": places[nodes]}, batch_size=[])
            td, tour = env.reset(one.unsqueeze(0)), [nodes.index(node) + 1 for node in route]
            distance -= env.get_reward(td, torch.tensor([tour]), check_solution=True).item()
            with pytest.raises(InvalidSolutionError, match="precedes"):
                env.check_solution_validity(td, torch.tensor([tour[::-1]]))
        assert distance == pytest.approx(instance.best_known, abs=0.02)


# ---------------------------------------------------------------- generator


def test_generator_defaults():
    """Twenty customers, uniform on the unit square, the depot like the others."""
    instances = PDPGenerator()(2000, torch.Generator().manual_seed(0))
    assert set(instances.keys()) == {"locs", "depot"}
    assert instances["locs"].shape == (2000, 20, 2)
    for points in instances.values():
        assert points.min() >= 0
        assert points.max() <= 1
        assert points.mean().item() == pytest.approx(0.5, abs=0.02)
        assert points.var().item() == pytest.approx(1 / 12, rel=0.05)


def test_generator_options():
    """Other squares and distributions, the depot with one of its own."""
    generator = PDPGenerator(
        num_loc=4,
        min_loc=2.0,
        max_loc=4.0,
        loc_distribution="normal",
        loc_mean=3.0,
        loc_std=0.1,
        depot_distribution=2.5,
    )
    instances = generator([3, 2], torch.Generator().manual_seed(0))
    assert instances.batch_size == (3, 2)
    assert (instances["depot"] == 2.5).all()
    assert instances["locs"].std() < 0.2
    assert instances["locs"].min() >= 2
    with pytest.raises(ConfigError, match="loc_rate"):
        PDPGenerator(loc_rate=1.0)


# ---------------------------------------------------------------- plots


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("num_loc", [2, 40, 80])
def test_plot(num_loc: int, forced: bool):
    """Title with the cost, one line for the tour, one for each of up to 30 orders."""
    env = PDPEnv(PDPGenerator(num_loc=num_loc), force_start_at_depot=forced)
    episode = record_episode(env, env.generate(2), derive_generator(0))
    reward = env.get_reward(episode.initial, episode.actions)
    axes = env.render(episode.initial, episode.actions, index=1).axes[0]
    orders = num_loc // 2
    noun = "order" if orders == 1 else "orders"
    assert axes.get_title() == f"{orders} {noun} · cost {-reward[1].item():.3f}"
    assert len(axes.lines) == 1 + (orders if orders <= 30 else 0)
    assert len(axes.lines[-1].get_xdata()) == num_loc + 2
    partial = env.render(episode.initial, episode.actions[:, : 1 + forced]).axes[0]
    assert "1 visited" in partial.get_title()
    assert len(env.render(episode.initial).axes[0].lines) == len(axes.lines) - 1
