"""SDVRP: exhaustive oracles in whole units, remainders of rounding, step bounds, pies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from tensordict import TensorDict

from rl4co.core.errors import InvalidInstanceError, UnsupportedError
from rl4co.core.rng import derive_generator
from rl4co.envs import CVRPEnv, CVRPGenerator, SDVRPEnv
from rl4co.envs.contract.evidence import record_episode
from rl4co.envs.rendering import ROUTE_COLORS
from rl4co.envs.routing.sdvrp.render import deliveries
from tests.unit.envs.routing_oracle import allowed_solutions, distances_of, euclidean, round_trip


def make_instance(units: list[int], capacity: int, seed: int = 0) -> tuple[TensorDict, np.ndarray]:
    """An instance without batch axis and its distances `[N, N]`."""
    points = np.random.default_rng(seed).random((len(units) + 1, 2))
    instance = {
        "depot": torch.as_tensor(points[0], dtype=torch.float32),
        "locs": torch.as_tensor(points[1:], dtype=torch.float32),
        "demand": torch.tensor(units, dtype=torch.float32) / capacity,
        "capacity": torch.tensor([float(capacity)]),
    }
    return TensorDict(instance, batch_size=[]), euclidean(points)


def all_plans(units: list[int], capacity: int) -> set[tuple[int, ...]]:
    """Every sequence of useful visits, by integers: each one delivers, no depot twice in a row."""
    found = set()

    def extend(plan: tuple[int, ...], left: tuple[int, ...], room: int) -> None:
        if not any(left):
            found.add(plan or (0,))
            return
        for node, needed in enumerate(left, start=1):
            amount = min(needed, room)
            if amount:
                rest = (*left[: node - 1], needed - amount, *left[node:])
                extend((*plan, node), rest, room - amount)
        if plan and plan[-1] != 0:
            extend((*plan, 0), left, capacity)

    extend((), tuple(units), capacity)
    return found


def step_through(env: SDVRPEnv, instance: TensorDict, actions: list[int]) -> TensorDict:
    td = env.reset(instance.unsqueeze(0))
    for action in actions:
        assert td["action_mask"][0, action], f"{action} of {actions}"
        td = env.step(td.set("action", torch.tensor([action])))["next"]
    return td


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize(
    ("units", "capacity"),
    [([7], 7), ([3, 4], 5), ([6, 6, 4], 8), ([7, 7, 7], 10), ([2, 5, 3], 10), ([0, 3, 2], 4)],
)
def test_mask_allows_exactly_the_useful_plans(units: list[int], capacity: int):
    """Neither more nor less than exhaustive search; the cheapest is among them."""
    instance, distances = make_instance(units, capacity)
    expected = {plan: -round_trip(distances, plan) for plan in all_plans(units, capacity)}
    env = SDVRPEnv()
    assert allowed_solutions(env, instance) == pytest.approx(expected, rel=1e-5)
    lengths = [*map(len, expected)]
    fewest, most = env.step_bounds(dict(env.reset(instance).items()))
    assert fewest <= min(lengths) <= max(lengths) <= most


def test_sharing_pays():
    """Two vehicles do with sharing what takes three without."""
    instance, _ = make_instance([6, 6, 4], 8)
    shared, alone = (
        max(allowed_solutions(env, instance).values()) for env in (SDVRPEnv(), CVRPEnv())
    )
    assert shared > alone + 0.1


@given(
    num_loc=st.integers(1, 8),
    capacity=st.floats(0.1, 100.0),
    tolerance=st.sampled_from([0.0, 1e-5, 1e-3]),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_rollouts(num_loc: int, capacity: float, tolerance: float, seed: int):
    """Any demands that fit end within the bounds, valid, at the cost that NumPy says."""
    env = SDVRPEnv(CVRPGenerator(num_loc=num_loc), capacity_tolerance=tolerance)
    rng = derive_generator(seed)
    td = env.generator([4], rng=rng)
    share = torch.rand(4, num_loc, generator=rng)
    share = torch.where(torch.rand(4, num_loc, generator=rng) < 0.2, share.round(), share)
    td["vehicle_capacity"] = torch.full((4, 1), capacity)
    td["demand"] = share * td["vehicle_capacity"]
    episode = record_episode(env, td, rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    for b, actions in enumerate(episode.actions.tolist()):
        cost = round_trip(distances_of(td[b]), actions)
        assert -float(reward[b]) == pytest.approx(cost, abs=1e-4)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_routes():
    """Loads and what is left, at shared customers, at the depot and after the end."""
    instance, _ = make_instance([6, 6, 4], 8)
    env = SDVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["action_mask"][0].tolist() == [False, True, True, True]
    script = [
        (1, 0.75, [0, 0.75, 0.5], [True, False, True, True], False),
        (2, 1.0, [0, 0.5, 0.5], [True, False, False, False], False),  # two of six: full
        (0, 0.0, [0, 0.5, 0.5], [False, False, True, True], False),
        (2, 0.5, [0, 0, 0.5], [True, False, False, True], False),
        (3, 1.0, [0, 0, 0], [True, False, False, False], True),
        (0, 0.0, [0, 0, 0], [True, False, False, False], True),
        (0, 0.0, [0, 0, 0], [True, False, False, False], True),  # waits at the depot
    ]
    for action, used, left, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["used_capacity"].item() == pytest.approx(used)
        assert td["remaining_demand"][0].tolist() == [0.0, *left]
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done
        assert td["demand"][0].tolist() == [0.0, 0.75, 0.75, 0.5]


def test_strict_float32_leaves_remainders():
    """The option of the original code: some full vehicles leave rests of 1e-8, to be delivered."""
    rng = np.random.default_rng(0)
    env, strict = SDVRPEnv(), SDVRPEnv(capacity_tolerance=0.0)
    visits, rests = [], []
    for seed in range(40):
        units = rng.integers(1, 10, 12).tolist()
        instance, _ = make_instance(units, 30, seed)
        for mode in (env, strict):
            state, count = mode.reset(instance.unsqueeze(0)), 0
            while not state["done"].all():
                # Customers in turn, the depot only when there is no other way.
                order = state["action_mask"][0].int().tolist()
                action = next((node for node in range(1, 13) if order[node]), 0)
                count += action != 0
                state = mode.step(state.set("action", torch.tensor([action])))["next"]
                left = state["remaining_demand"]
                rests.append(left[left > 0].min().item() if bool((left > 0).any()) else 1.0)
            visits.append(count)
    default, plain = visits[::2], visits[1::2]
    assert all(a <= b for a, b in zip(default, plain, strict=True))
    assert sum(plain) > sum(default)
    assert 0 < min(rests) < 1e-6


@pytest.mark.parametrize("num_loc", [1, 2, 5, 9])
def test_longest_plan_reaches_the_bound(num_loc: int):
    """Demands of 0.9: each vehicle finishes one customer and begins the next."""
    instance, _ = make_instance([9] * num_loc, 10)
    plan = [1]
    for node in range(2, num_loc + 1):
        plan += [node, 0, node]
    env = SDVRPEnv()
    assert step_through(env, instance, plan)["done"].item()
    assert len(plan) == env.step_bounds(dict(env.reset(instance).items()))[1]


def test_shortest_plan_reaches_the_bound():
    instance, _ = make_instance([0, 0], 10)
    env = SDVRPEnv()
    assert step_through(env, instance, [0])["done"].item()
    assert env.step_bounds(dict(env.reset(instance).items()))[0] == 1


def test_demand_within_the_tolerance_is_served_at_once():
    """What the check of instances lets pass, an empty vehicle serves in one visit."""
    env = SDVRPEnv()
    instance, _ = make_instance([1], 1)
    for capacity, step in itertools.product((0.3, 1.0, 7.0, 30.0), range(20)):
        instance["vehicle_capacity"] = torch.tensor([capacity])
        limit = instance["vehicle_capacity"] * (1.0 + 1e-5)
        instance["demand"] = limit * (1.0 - step * 6e-8)
        assert step_through(env, instance, [1])["done"].item()


def test_starts_are_customers_with_a_demand():
    instances = torch.stack([make_instance(units, 8)[0] for units in ([3, 0, 2], [1, 2, 3])])
    env = SDVRPEnv()
    td = env.reset(instances)
    assert env.get_num_starts(td) == 3
    starts = env.select_start_nodes(td, 3).view(3, 2).t()
    assert starts.tolist() == [[1, 3, 1], [1, 2, 3]]
    assert env.get_num_starts(td[:1]) == 2


def test_useless_visits_are_valid_but_not_enough():
    """The check counts deliveries, not visits."""
    instance, _ = make_instance([6, 6, 4], 8)
    env = SDVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    # The second visit of customer 1, and the one with an empty vehicle, deliver nothing.
    env.check_solution_validity(td, torch.tensor([[1, 1, 2, 3, 0, 2, 3]]))
    assert env._violations(dict(td.items()), torch.tensor([[1, 2, 3, 0, 2, 0, 2]]))[
        "every demand is delivered"
    ].tolist() == [True]


def test_rejected_input():
    """Demands above the vehicle, and the local search of the CVRP, which knows no sharing."""
    env = SDVRPEnv(CVRPGenerator(num_loc=3))
    td = env.generate(3)
    td["demand"][1, 2] = 1.01
    with pytest.raises(InvalidInstanceError, match=r"divide demand by capacity.*instances 1\)"):
        env.reset(td)
    instance, _ = make_instance([6, 6, 4], 8)
    with pytest.raises(UnsupportedError, match="sdvrp has no local search"):
        env.local_search(env.reset(instance.unsqueeze(0)), torch.tensor([[1, 2, 0, 2, 3]]))


# ---------------------------------------------------------------- plots


def test_deliveries():
    amounts = deliveries(np.array([0, 6.0, 6.0, 4.0]), 8.0, [np.array([1, 2]), np.array([2, 3])])
    assert amounts.tolist() == [[0, 6, 2, 0], [0, 0, 4, 4]]


def test_plot():
    """Loads in original units, and a pie of two thirds and one third for the shared customer."""
    instance, _ = make_instance([6, 6, 4], 8)
    env = SDVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    actions = torch.tensor([[1, 2, 0, 2, 3, 0]])
    axes = env.render(td, actions).axes[0]
    cost = -float(env.get_reward(td, actions))
    assert axes.get_title() == f"3 customers (1 shared) · 2 routes · cost {cost:.3f}"
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["route 1: 8/8", "route 2: 8/8", "depot"]
    slices = [c for c in axes.collections if c.get_zorder() == 5]
    assert [to_hex(c.get_facecolors()[0]) for c in slices] == list(ROUTE_COLORS[:2])
    place = td["locs"][0, 2].tolist()
    assert all(np.asarray(c.get_offsets())[0].tolist() == pytest.approx(place) for c in slices)
    angles = []
    for piece in slices:
        arc = np.asarray(piece.get_paths()[0].vertices)[1:41]
        turns = np.unwrap(np.arctan2(arc[:, 1], arc[:, 0]))
        angles.append(abs(turns[-1] - turns[0]) / (2 * np.pi))
    assert angles == pytest.approx([2 / 6, 4 / 6], abs=1e-3)
    assert env.render(td).axes[0].get_title() == "3 customers"
