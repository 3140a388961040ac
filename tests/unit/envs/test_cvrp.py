"""CVRP: exhaustive oracles, stepping, exactly full vehicles, and instances in other units."""

from __future__ import annotations

import itertools

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.rng import derive_generator
from rl4co.envs import CVRPEnv, CVRPGenerator, SDVRPEnv
from rl4co.envs.contract.evidence import record_episode
from tests.unit.envs.routing_oracle import (
    all_routes,
    allowed_solutions,
    as_actions,
    count_steps,
    euclidean,
    round_trip,
)

CAPACITY = 10


def random_instance(num_loc: int, seed: int) -> tuple[TensorDict, np.ndarray, np.ndarray]:
    """An instance without batch axis, its integer demands and its distances `[N, N]`."""
    rng = np.random.default_rng(seed)
    points = rng.random((num_loc + 1, 2))
    units = rng.integers(1, 7, num_loc)
    instance = {
        "depot": points[0],
        "locs": points[1:],
        "demand": units / CAPACITY,
        "capacity": np.array([CAPACITY]),
    }
    tensors = {key: torch.as_tensor(value, dtype=torch.float32) for key, value in instance.items()}
    return TensorDict(tensors, batch_size=[]), units, euclidean(points)


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All ways to split a list into non-empty sets."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for split in partitions(rest):
        yield [[first], *split]
        for index in range(len(split)):
            yield [*split[:index], [first, *split[index]], *split[index + 1 :]]


def brute_force(units: np.ndarray, distances: np.ndarray) -> float:
    """Cheapest cost over all partitions into loads that fit, each route in its best order."""

    def route_cost(customers: list[int]) -> float:
        return min(round_trip(distances, order) for order in itertools.permutations(customers))

    return min(
        sum(map(route_cost, split))
        for split in partitions(list(range(1, len(units) + 1)))
        if all(sum(units[c - 1] for c in route) <= CAPACITY for route in split)
    )


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_loc", [1, 2, 3, 4])
def test_best_allowed_solution_is_optimal(num_loc: int, seed: int):
    """The mask leaves a best solution among those it allows, and allows none that is invalid."""
    instance, units, distances = random_instance(num_loc, seed)
    best = max(allowed_solutions(CVRPEnv(), instance).values())
    assert -best == pytest.approx(brute_force(units, distances), rel=1e-5)


def test_mask_allows_every_sensible_solution():
    """All orders and splits that fit, without idle stops at the depot: counted independently."""
    instance, units, _ = random_instance(4, seed=3)
    expected = {
        as_actions(routes)
        for routes in all_routes(range(1, 5))
        if all(sum(units[node - 1] for node in route) <= CAPACITY for route in routes)
    }
    assert set(allowed_solutions(CVRPEnv(), instance)) == expected


@pytest.mark.solvers
@pytest.mark.parametrize("seed", [0, 1])
def test_pyvrp_agrees(seed: int):
    """HGS with distances scaled to integers finds the brute-force optimum of five customers."""
    pyvrp = pytest.importorskip("pyvrp")
    from pyvrp.stop import MaxIterations

    instance, units, distances = random_instance(5, seed)
    scale = 100_000
    model = pyvrp.Model()
    locations = [model.add_location(0, 0) for _ in distances]
    model.add_depot(locations[0])
    for location, unit in zip(locations[1:], units, strict=True):
        model.add_client(location, delivery=int(unit))
    model.add_vehicle_type(num_available=5, capacity=CAPACITY)
    for (a, start), (b, end) in itertools.product(enumerate(locations), repeat=2):
        model.add_edge(start, end, distance=round(scale * distances[a, b]))
    best = model.solve(stop=MaxIterations(200), seed=1, display=False).best

    actions = [action for route in best.routes() for action in (*_clients(route), 0)]
    env = CVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    reward = float(env.get_reward(td, torch.tensor([actions])))
    assert -reward == pytest.approx(best.distance_cost() / scale, rel=1e-4)
    assert -reward == pytest.approx(brute_force(units, distances), rel=1e-4)


def _clients(route) -> list[int]:
    """Customers of a PyVRP route, counted from 1."""
    return [visit.idx + 1 for visit in route if visit.is_client()]


# ---------------------------------------------------------------- stepping


def test_state_follows_the_route():
    """Load, visits and mask on a route, at the depot and after the end."""
    instance = TensorDict(
        {
            "depot": torch.tensor([0.0, 0.0]),
            "locs": torch.rand(3, 2),
            "demand": torch.tensor([0.6, 0.4, 0.5]),
            "capacity": torch.tensor([10.0]),
        },
        batch_size=[],
    )
    env = CVRPEnv()
    td = env.reset(instance.unsqueeze(0))
    assert td["locs"].shape == (1, 4, 2)
    assert td["demand"].tolist()[0] == pytest.approx([0.0, 0.6, 0.4, 0.5])
    # action → load, allowed nodes, done. At the start the depot is pointless.
    assert td["action_mask"][0].tolist() == [False, True, True, True]
    script = [
        (1, 0.6, [True, False, True, False], False),  # 0.6 + 0.5 does not fit
        (2, 1.0, [True, False, False, False], False),  # exactly full: only the depot
        (0, 0.0, [False, False, False, True], False),
        (3, 0.5, [True, False, False, False], True),
        (0, 0.0, [True, False, False, False], True),  # done, waits at the depot
        (0, 0.0, [True, False, False, False], True),
    ]
    for action, load, allowed, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["used_capacity"].item() == pytest.approx(load)
        assert td["action_mask"][0].tolist() == allowed
        assert td["done"].item() is done
        assert td["current_node"].item() == action


@given(
    capacity=st.sampled_from([20, 30, 33, 37, 40, 50, 70, 150]),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_exactly_full_vehicles_are_allowed(capacity: int, seed: int):
    """Integer demands that add up to the capacity fit, whatever float32 makes of their sum."""
    rng = np.random.default_rng(seed)
    units = []
    while sum(units) < capacity:
        units.append(min(int(rng.integers(1, 10)), capacity - sum(units)))
    num_loc = len(units)
    instance = TensorDict(
        {
            "depot": torch.zeros(2),
            "locs": torch.rand(num_loc, 2),
            "demand": torch.tensor(units, dtype=torch.float32) / capacity,
            "capacity": torch.tensor([float(capacity)]),
        },
        batch_size=[],
    )
    env = CVRPEnv(check_action=True)
    td = env.reset(instance.unsqueeze(0))
    route = [*range(1, num_loc + 1), 0]
    for action in route:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
    assert td["done"].all()
    env.check_solution_validity(td, torch.tensor([route]))


def test_zero_tolerance_forbids_some_full_vehicles():
    """The option of the original code: 2 + 4 + 4 + 5 + 7 + 8 thirtieths are more than one."""
    units = torch.tensor([2.0, 4.0, 4.0, 5.0, 7.0, 8.0])
    instance = {
        "depot": torch.zeros(2), "locs": torch.rand(6, 2), "demand": units / 30,
        "capacity": torch.tensor([30.0]),
    }  # fmt: skip
    for tolerance, fits in ((1e-5, True), (0.0, False)):
        env = CVRPEnv(capacity_tolerance=tolerance)
        td = env.reset(TensorDict(instance, batch_size=[]).unsqueeze(0))
        for action in range(1, 6):
            td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["action_mask"][0, 6].item() is fits


@pytest.mark.parametrize("env_cls", [CVRPEnv, SDVRPEnv])
def test_capacity_comes_from_the_instance(env_cls: type[CVRPEnv]):
    """Raw demands with their vehicle_capacity are solved like the normalised ones, to the end."""
    env = env_cls(CVRPGenerator(num_loc=8))
    normal = env.generate(5)
    raw = normal.clone()
    raw["demand"] = normal["demand"] * normal["capacity"]
    raw["vehicle_capacity"] = normal["capacity"]
    episodes = [record_episode(env, td, derive_generator(1)) for td in (normal, raw)]
    assert all(episode.complete for episode in episodes)
    assert torch.equal(episodes[0].actions, episodes[1].actions)
    rewards = [env.get_reward(episode.initial, episode.actions) for episode in episodes]
    torch.testing.assert_close(*rewards)


def test_instances_of_a_batch_may_have_different_vehicles():
    """Each instance is bound by its own capacity."""
    env = CVRPEnv(CVRPGenerator(num_loc=4))
    td = env.generate(2)
    td["demand"] = torch.full((2, 4), 2.0)
    td["vehicle_capacity"] = torch.tensor([[2.0], [8.0]])
    td = env.reset(td)
    td = env.step(td.set("action", torch.tensor([1, 1])))["next"]
    assert td["action_mask"].tolist() == [[True, *[False] * 4], [True, False, True, True, True]]


@pytest.mark.parametrize("num_loc", [1, 2, 3, 10])
def test_step_bounds_are_reached(num_loc: int):
    """Full vehicles need the most steps, one vehicle for all the fewest."""
    env = CVRPEnv(CVRPGenerator(num_loc=num_loc))
    for demand, bound in ((1.0 / num_loc, 0), (1.0, 1)):
        td = env.generate(2)
        td["demand"] = torch.full_like(td["demand"], demand)
        # Customers first: the depot only when nothing else is allowed.
        steps, bounds = count_steps(env, td, last=True)
        assert steps == bounds[bound]


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("capacity", [None, 40, torch.tensor([[40], [40]]), torch.tensor([40, 40])])
def test_capacity_may_be_missing_or_an_integer(capacity: object) -> None:
    """The original capacity does not change the problem; without one it is 1."""
    env = CVRPEnv()
    td = env.generator(2)
    expected = env.reset(td)
    if capacity is None:
        del td["capacity"]
    else:
        td["capacity"] = (
            torch.as_tensor(capacity).expand(2) if isinstance(capacity, int) else capacity
        )
    state = env.reset(td)
    assert state["capacity"].flatten().tolist() == [1.0 if capacity is None else 40.0] * 2
    assert state["capacity"].dtype == torch.float32
    assert torch.equal(state["action_mask"], expected["action_mask"])
    env.check_instances(td)
    env.solve(td, max_runtime=0.1, solver="nearest_neighbor")
