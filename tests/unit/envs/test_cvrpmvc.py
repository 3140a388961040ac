"""CVRPMVC: exhaustive oracles, the number of vehicles, local search."""

from __future__ import annotations

import math

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import InvalidSolutionError
from rl4co.core.rng import derive_generator
from rl4co.envs import CVRPEnv, CVRPGenerator, CVRPMVCEnv
from rl4co.envs.contract.evidence import record_episode
from tests.unit.envs.routing_oracle import all_routes, allowed_solutions, as_actions, as_routes

CAPACITY = 10
EARLY = "no vehicle returns early while the others cannot carry the rest"


def instance_of(units: Sequence[int], vehicles: int | None = None, seed: int = 0) -> TensorDict:
    """An instance without batch axis; a vehicle carries 10 units."""
    points = np.random.default_rng(seed).random((len(units) + 1, 2))
    fields = {
        "depot": points[0], "locs": points[1:], "demand": np.array(units) / CAPACITY,
        "capacity": np.array([CAPACITY]),
    }  # fmt: skip
    if vehicles is not None:
        fields["max_vehicle"] = np.array([vehicles])
    return TensorDict({k: torch.as_tensor(v).float() for k, v in fields.items()}, [])


def fleet(units: Sequence[int]) -> int:
    return math.ceil(sum(units) / CAPACITY) + 1


def returns_early(units: Sequence[int], routes: Sequence[Sequence[int]], vehicles: int) -> bool:
    """In integers: some vehicle comes back though a customer fits and the rest is too much."""
    for k in range(1, len(routes)):
        rest = [node for route in routes[k:] for node in route]
        load = sum(units[node - 1] for node in routes[k - 1])
        fits = load + min(units[node - 1] for node in rest) <= CAPACITY
        if fits and sum(units[node - 1] for node in rest) > (vehicles - k) * CAPACITY:
            return True
    return False


def all_splits(units: Sequence[int]) -> list[list[list[int]]]:
    """All orders of all splits into loads that fit."""
    return [
        routes
        for routes in all_routes(range(1, len(units) + 1))
        if all(sum(units[node - 1] for node in route) <= CAPACITY for route in routes)
    ]


def count_routes(actions: torch.Tensor) -> torch.Tensor:
    """Routes with customers: `[B, T]` → `[B]`."""
    previous = torch.cat([torch.zeros_like(actions[:, :1]), actions[:, :-1]], -1)
    return ((actions != 0) & (previous == 0)).sum(-1)


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize(
    ("units", "vehicles"),
    [
        ([3, 3, 3, 1], None),  # one vehicle would do
        ([5, 5, 5, 5], 2),
        ([6, 6, 6, 2], 2),  # two vehicles have the room, but three are needed
        ([6, 4, 3, 7], None),  # 20 units in all: exactly two vehicles
        ([9, 1, 5, 5], 2),
        ([10, 10, 1, 1], None),
        ([2], None),
    ],
    ids=str,
)
def test_mask_and_check_allow_the_same(units: list[int], vehicles: int | None):
    """Of all solutions of the CVRP, those in which no vehicle returns early."""
    available = fleet(units) if vehicles is None else vehicles
    env, instance = CVRPMVCEnv(), instance_of(units, vehicles)
    splits = all_splits(units)
    verdicts = {as_actions(routes): returns_early(units, routes, available) for routes in splits}
    expected = {actions for actions, early in verdicts.items() if not early}
    assert set(allowed_solutions(env, instance)) == expected
    td = env.reset(instance.unsqueeze(0))
    for actions, early in verdicts.items():
        violated = env._violations(dict(td.items()), torch.tensor([actions]))[EARLY]
        assert violated.item() is early, actions
    # Whoever gets by with the vehicles there are has done nothing wrong.
    assert all(as_actions(routes) in expected for routes in splits if len(routes) <= available)


@given(
    units=st.lists(st.integers(1, 9), min_size=1, max_size=14),
    spare=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
def test_random_rollouts(units: list[int], spare: int, seed: int):
    """They end, are valid, and use more vehicles than there are only if nothing fitted any more."""
    vehicles = fleet(units) - 1 + spare
    env = CVRPMVCEnv()
    instance = instance_of(units, vehicles, seed)
    episode = record_episode(env, instance.expand(4), derive_generator(seed))
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    torch.testing.assert_close(
        reward, CVRPEnv().get_reward(CVRPEnv().reset(instance.expand(4)), episode.actions)
    )
    for actions in episode.actions.tolist():
        assert not returns_early(units, as_routes(actions), vehicles)


def test_without_tolerance_the_check_does_not_know_better():
    """These 40 fortieths are more than 1 in float32, so the last one needs another vehicle."""
    units = [1, 9, 1, 3, 9, 9, 7, 1]
    td = instance_of(units, vehicles=1).unsqueeze(0)
    td["demand"] = torch.tensor([units]) / 40
    env = CVRPMVCEnv(capacity_tolerance=0.0, check_action=True)
    state = env.reset(td)
    actions = [1, 2, 3, 4, 5, 6, 7, 0, 8]
    for action in actions:
        state = env.step(state.set("action", torch.tensor([action])))["next"]
    env.check_solution_validity(state, torch.tensor([actions]))
    with pytest.raises(InvalidSolutionError, match="returns early"):
        CVRPMVCEnv().check_solution_validity(state, torch.tensor([actions]))


# ---------------------------------------------------------------- vehicles


@pytest.mark.parametrize(("capacity", "num_loc"), [(30, 20), (40, 50), (33, 30)])
def test_whole_vehicles_are_not_counted_twice(capacity: int, num_loc: int):
    """Integer demands that fill vehicles need no more, whatever float32 makes of their sum."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        units = rng.integers(1, 10, num_loc)
        units[0] += -units.sum() % capacity  # at most a full vehicle
        demand = torch.from_numpy(np.minimum(units, capacity)).float() / capacity
        td = instance_of([1] * num_loc)
        td["demand"] = demand
        state = CVRPMVCEnv().reset(td)
        needed = math.ceil(int(np.minimum(units, capacity).sum()) / capacity)
        assert state["max_vehicle"].item() == needed + 1


def test_fewer_vehicles_than_the_cvrp():
    """Random solutions of the same instances: nearly all get by with the vehicles there are."""
    generator = CVRPGenerator(num_loc=30)
    td = generator(64, rng=torch.Generator().manual_seed(0))
    routes = {}
    for env in (CVRPEnv(), CVRPMVCEnv()):
        episode = record_episode(env, td, derive_generator(1))
        routes[env.name] = count_routes(episode.actions).float()
    most = CVRPMVCEnv().reset(td)["max_vehicle"].squeeze(-1)
    assert (routes["cvrpmvc"] <= most).float().mean() > 0.9
    assert (routes["cvrp"] <= most).float().mean() < 0.7
    assert routes["cvrpmvc"].mean() < routes["cvrp"].mean() - 0.5


def test_state_counts_vehicles_and_demand():
    """Nothing is subtracted at the depot, and waiting there uses no vehicle."""
    env = CVRPMVCEnv(check_action=False)  # which waits against the mask
    td = env.reset(instance_of([4, 5, 3]).unsqueeze(0))
    assert td["max_vehicle"].item() == 3
    script = [  # action → vehicles, rest, the depot is allowed
        (0, 1, 12, False),
        (2, 1, 7, True),
        (0, 2, 7, False),
        (1, 2, 3, True),
        (0, 3, 3, False),
        (3, 3, 0, True),
        (0, 4, 0, True),
        (0, 4, 0, True),
    ]
    for action, vehicles, rest, depot in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["vehicles_used"].item() == vehicles
        assert td["demand_remaining"].item() * CAPACITY == pytest.approx(rest, abs=1e-5)
        assert td["action_mask"][0, 0].item() is depot


def test_instances_have_different_fleets():
    """Two vehicles may not come back early, five may."""
    env = CVRPMVCEnv()
    td = torch.stack([instance_of([4, 4, 4, 4], 2), instance_of([4, 4, 4, 4], 5)])
    state = env.step(env.reset(td).set("action", torch.tensor([1, 1])))["next"]
    assert state["action_mask"][:, 0].tolist() == [False, True]
    with pytest.raises(InvalidSolutionError) as caught:
        env.check_solution_validity(env.reset(td), torch.tensor([[1, 0, 2, 0, 3, 0, 4]] * 2))
    assert caught.value.instances == [0]
    assert caught.value.constraint == EARLY


# ---------------------------------------------------------------- local search, plots


def test_local_search_keeps_what_it_would_make_invalid(monkeypatch: pytest.MonkeyPatch):
    """A result that sends a vehicle home early is not taken; that of batch mates is."""
    env = CVRPMVCEnv()
    td = env.reset(torch.stack([instance_of([5, 5, 5], 2), instance_of([5, 5, 5], 3)]))
    given_actions = torch.tensor([[1, 2, 0, 3], [1, 2, 0, 3]])
    early = torch.tensor([[1, 0, 2, 0, 3]] * 2)
    monkeypatch.setattr(CVRPEnv, "_local_search", lambda *_, **__: early)
    found = env.local_search(td, given_actions)
    assert found.tolist() == [[1, 2, 0, 3, 0], [1, 0, 2, 0, 3]]


def test_title_counts_vehicles():
    env = CVRPMVCEnv()
    td = env.reset(instance_of([5, 5, 5]).unsqueeze(0))
    title = env.render(td, torch.tensor([[1, 2, 0, 3]])).axes[0].get_title()
    cost = -float(env.get_reward(td, torch.tensor([[1, 2, 0, 3]])))
    assert title == f"3 customers · 2 of 3 vehicles · cost {cost:.3f}"
    assert env.render(td).axes[0].get_title() == "3 customers · 3 vehicles"
    assert env.render(td, title="mine").axes[0].get_title() == "mine"
