"""MDCPDP: exhaustive oracles in every mode, stepping, real routes, generator, bad input."""

from __future__ import annotations

import itertools
import math

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import (
    InvalidSolutionError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.data.formats import read_instance
from rl4co.envs import MDCPDPEnv, MDCPDPGenerator, check_env
from rl4co.envs.contract.evidence import record_episode, replay_actions
from rl4co.envs.testing import enumerate_solutions

Routes = dict[int, tuple[int, ...]]

REWARD_MODES = ("lateness", "lateness_square", "minmax", "minsum")
PROBLEM_MODES = ("open", "close")


def make_instance(
    num_loc: int, capacity: list[int], seed: int, weight: float = 0.3, matrix: bool = False
) -> TensorDict:
    """An instance without batch axis; with an asymmetric matrix instead of coordinates or not."""
    rng, k = np.random.default_rng(seed), len(capacity)
    tensors = {
        "capacity": torch.tensor(capacity),
        "lateness_weight": torch.tensor([weight], dtype=torch.float32),
    }
    if matrix:
        costs = rng.random((num_loc + k, num_loc + k))
        tensors["cost_matrix"] = torch.as_tensor(costs, dtype=torch.float32)
    else:
        tensors["depot"] = torch.as_tensor(rng.random((k, 2)), dtype=torch.float32)
        tensors["locs"] = torch.as_tensor(rng.random((num_loc, 2)), dtype=torch.float32)
    return TensorDict(tensors, batch_size=[])


def costs_of(instance: TensorDict, dist_mode: str = "L2") -> np.ndarray:
    """All legs `[N, N]` in double precision."""
    if "cost_matrix" in instance.keys():
        return instance["cost_matrix"].double().numpy()
    points = torch.cat([instance["depot"], instance["locs"]]).double().numpy()
    gaps = np.abs(points[:, None] - points[None])
    return gaps.sum(-1) if dist_mode == "L1" else np.sqrt((gaps**2).sum(-1))


def cost_of_routes(
    instance: TensorDict,
    routes: Routes,
    reward_mode: str = "lateness",
    problem_mode: str = "open",
    dist_mode: str = "L2",
) -> float:
    """The objective, vehicle by vehicle and leg by leg."""
    costs, k = costs_of(instance, dist_mode), len(instance["capacity"])
    first_delivery = k + (len(costs) - k) // 2
    weight = instance["lateness_weight"].item()
    lengths, late = [0.0], 0.0
    for depot, route in routes.items():
        driven, here = 0.0, depot
        for node in route:
            driven += costs[here, node]
            here = node
            if node >= first_delivery:
                late += driven**2 if reward_mode == "lateness_square" else driven
        lengths.append(driven + (costs[here, depot] if problem_mode == "close" else 0.0))
    if reward_mode == "minmax":
        return max(lengths)
    if reward_mode == "minsum":
        return sum(lengths)
    return (1 - weight) * sum(lengths) + weight * late


def split_routes(actions: list[int], num_depots: int) -> Routes:
    """Depot → customers of its vehicle, without vehicles that stay at home."""
    routes: Routes = {}
    for action in actions:
        if action < num_depots:
            depot = action
        else:
            routes[depot] = (*routes.get(depot, ()), action)
    return routes


def vehicle_routes(orders: tuple[int, ...], half: int, capacity: int) -> Iterator[tuple[int, ...]]:
    """All routes that serve these pickups and their deliveries within a capacity."""
    nodes = [*orders, *(order + half for order in orders)]
    for route in itertools.permutations(nodes):
        load, fits = 0, True
        for position, node in enumerate(route):
            pickup = node in orders
            load += 1 if pickup else -1
            fits &= load <= capacity and (pickup or node - half in route[:position])
        if fits:
            yield route


def all_solutions(num_loc: int, capacity: list[int]) -> list[Routes]:
    """Every assignment of orders to vehicles with every feasible route of each."""
    k, half = len(capacity), num_loc // 2
    found = []
    for vehicles in itertools.product(range(k), repeat=half):
        used = sorted(set(vehicles))
        choices = [
            list(
                vehicle_routes(
                    tuple(k + j for j, vehicle in enumerate(vehicles) if vehicle == depot),
                    half,
                    capacity[depot],
                )
            )
            for depot in used
        ]
        found += [dict(zip(used, routes, strict=True)) for routes in itertools.product(*choices)]
    return found


def pad(solutions: list[list[int]], num_depots: int) -> torch.Tensor:
    """Solutions of one length: vehicles wait at their last depot."""
    longest = max(map(len, solutions))
    rows = []
    for actions in solutions:
        last = [action for action in actions if action < num_depots][-1]
        rows.append(actions + [last] * (longest - len(actions)))
    return torch.tensor(rows)


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize(
    ("num_loc", "capacity"),
    [(2, [1]), (2, [2, 1]), (4, [1]), (4, [2]), (4, [1, 2]), (4, [2, 2, 1]), (6, [1, 2])],
    ids=str,
)
def test_mask_allows_exactly_the_feasible_solutions(num_loc: int, capacity: list[int]):
    """Counted independently: the routes of R vehicles can be built in R! orders."""
    k = len(capacity)
    solutions = enumerate_solutions(MDCPDPEnv(), make_instance(num_loc, capacity, seed=1))
    expected = all_solutions(num_loc, capacity)
    found = {frozenset(split_routes(actions, k).items()) for actions in solutions}
    assert found == {frozenset(routes.items()) for routes in expected}
    assert len(solutions) == sum(math.factorial(len(routes)) for routes in expected)
    assert len(set(map(tuple, solutions))) == len(solutions)


@pytest.mark.parametrize("reward_mode", REWARD_MODES)
@pytest.mark.parametrize("problem_mode", PROBLEM_MODES)
@pytest.mark.parametrize(("dist_mode", "matrix"), [("L1", False), ("L2", False), ("L2", True)])
def test_rewards_and_optimum(reward_mode: str, problem_mode: str, dist_mode: str, matrix: bool):
    """Every solution costs what independent code says, padded or not, and so does the best."""
    modes = {"reward_mode": reward_mode, "problem_mode": problem_mode, "dist_mode": dist_mode}
    capacity = [1, 2]
    instance = make_instance(4, capacity, seed=5, matrix=matrix)
    env = MDCPDPEnv(**modes)
    solutions = enumerate_solutions(env, instance)
    td = env.reset(instance.expand(len(solutions)))
    reward = env.get_reward(td, pad(solutions, 2), check_solution=True)
    expected = [cost_of_routes(instance, split_routes(s, 2), **modes) for s in solutions]
    assert (-reward).tolist() == pytest.approx(expected, rel=1e-5)
    best = min(cost_of_routes(instance, routes, **modes) for routes in all_solutions(4, capacity))
    assert -reward.max().item() == pytest.approx(best, rel=1e-5)


@given(
    pairs=st.integers(min_value=1, max_value=6),
    num_agents=st.integers(min_value=1, max_value=5),
    max_capacity=st.integers(min_value=1, max_value=4),
    batch=st.sampled_from([(), (1,), (4,), (2, 2)]),
    modes=st.fixed_dictionaries(
        {
            "reward_mode": st.sampled_from(REWARD_MODES),
            "problem_mode": st.sampled_from(PROBLEM_MODES),
            "dist_mode": st.sampled_from(["L1", "L2"]),
            "start_mode": st.sampled_from(["order", "random"]),
        }
    ),
    seed=st.integers(min_value=0, max_value=2**32),
)
def test_random_rollouts(
    pairs: int,
    num_agents: int,
    max_capacity: int,
    batch: tuple[int, ...],
    modes: dict[str, Any],
    seed: int,
):
    """They never get stuck, end within the bounds, are valid, and cost what NumPy says."""
    rng = derive_generator(seed)
    generator = MDCPDPGenerator(
        num_loc=2 * pairs,
        num_agents=num_agents,
        min_capacity=1,
        max_capacity=max_capacity,
        min_lateness_weight=0.0,
    )
    env = MDCPDPEnv(generator, **modes)
    episode = record_episode(env, generator(batch, rng=rng), rng)
    assert episode.complete
    reward = env.get_reward(episode.initial, episode.actions, check_solution=True)
    assert reward.shape == batch
    rows = episode.actions.reshape(-1, episode.actions.shape[-1]).tolist()
    modes = {key: value for key, value in modes.items() if key != "start_mode"}
    for instance, actions, own in zip(
        episode.instances.reshape(-1), rows, reward.flatten().tolist(), strict=True
    ):
        cost = cost_of_routes(instance, split_routes(actions, num_agents), **modes)
        assert own == pytest.approx(-cost, rel=1e-4, abs=1e-5)


# ---------------------------------------------------------------- stepping


def test_state_follows_the_routes():
    """Depots 0 and 1; pickups 2, 3, 4 of deliveries 5, 6, 7; vehicle 0 carries one, 1 carries two.

    All on a line, the depots at 0 and 10, customers at 1 to 6.
    """
    instance = TensorDict(
        {
            "depot": torch.tensor([[0.0, 0.0], [10.0, 0.0]]),
            "locs": torch.tensor([[float(x), 0.0] for x in range(1, 7)]),
            "capacity": torch.tensor([1, 2]),
            "lateness_weight": torch.tensor([0.5]),
        },
        batch_size=[],
    )
    env = MDCPDPEnv(problem_mode="close")
    td = env.reset(instance.unsqueeze(0))
    assert td["action_mask"][0].nonzero().flatten().tolist() == [0, 1]
    # action → allowed, carry, length, longest, done
    script: list[tuple[int, list[int], int, float, float, bool]] = [
        (0, [2, 3, 4], 0, 0.0, 0.0, False),  # no return before the first customer
        (3, [6], 1, 2.0, 2.0, False),  # full
        (6, [0, 2, 4], 0, 5.0, 5.0, False),  # empty: may go home
        (0, [1], 0, 0.0, 10.0, False),  # back; only the other one is left
        (1, [2, 4], 0, 0.0, 10.0, False),
        (4, [2, 7], 1, 7.0, 10.0, False),
        (2, [5, 7], 2, 9.0, 10.0, False),
        (7, [5], 1, 14.0, 14.0, False),
        (5, [1], 0, 16.0, 16.0, True),
        (1, [1], 0, 0.0, 22.0, True),  # waits at its depot
        (1, [1], 0, 0.0, 22.0, True),
        (1, [1], 0, 0.0, 22.0, True),
    ]
    visited: list[int] = []
    for action, allowed, carry, length, longest, done in script:
        td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["action_mask"][0].nonzero().flatten().tolist() == allowed, action
        assert td["current_carry"].item() == carry
        assert td["current_length"].item() == length
        assert td["longest_length"].item() == longest
        assert td["done"].item() is done
        assert td["current_node"].item() == action
        assert td["num_unvisited"].item() == 6 - len({*visited, action} - {0, 1})
        visited.append(action)


@pytest.mark.parametrize("seed", range(3))
def test_state_stays_within_its_spec_whatever_the_action(seed: int):
    """TorchRL tries actions without looking at the mask: counts do not become negative."""
    env = MDCPDPEnv(MDCPDPGenerator(num_loc=4, num_agents=2), _torchrl_mode=True)
    td = env.reset(batch_size=[16])
    rng = torch.Generator().manual_seed(seed)
    for _ in range(12):
        td = env.step(td.set("action", torch.randint(6, (16,), generator=rng)))["next"]
        for key in ("current_carry", "num_unvisited", "current_capacity", "current_depot"):
            assert env.observation_spec[key].expand(td[key].shape).is_in(td[key]), key


def test_last_vehicle_has_to_finish():
    """With one depot there is no way home before the last customer."""
    env = MDCPDPEnv()
    td = env.reset(make_instance(4, [1], seed=0).unsqueeze(0))
    for action in (0, 1, 3):
        td = env.step(td.set("action", torch.tensor([action])))["next"]
    assert td["action_mask"][0].nonzero().flatten().tolist() == [2]


def test_cost_does_not_depend_on_batch_mates():
    """In the closed problem, too, the last way home counts once, however long others take."""
    env = MDCPDPEnv(MDCPDPGenerator(num_loc=6, num_agents=3), seed=2, problem_mode="close")
    instances = env.generate(1).expand(2)
    k = 3
    # One vehicle for all, and three vehicles with one order each.
    short = [0, 3, 6, 4, 7, 5, 8]
    long = [0, 3, 6, 0, 1, 4, 7, 1, 2, 5, 8]
    alone = env.get_reward(env.reset(instances[:1]), torch.tensor([short]))
    together = env.get_reward(env.reset(instances), pad([short, long], k))
    torch.testing.assert_close(together[0], alone[0])
    own = cost_of_routes(instances[0], {0: tuple(short[1:])}, problem_mode="close")
    assert -alone.item() == pytest.approx(own, rel=1e-5)


def test_capacity_comes_from_the_instance():
    """Each instance of a batch is bound by its own vehicles."""
    env = MDCPDPEnv(MDCPDPGenerator(num_loc=6, num_agents=2))
    instances = env.generate(2)
    instances["capacity"] = torch.tensor([[1, 3], [3, 1]])
    states = replay_actions(env, instances, torch.tensor([[0, 2], [0, 2]]))
    pickups = states[-1]["action_mask"][:, 2:5].tolist()
    assert pickups == [[False, False, False], [False, True, True]]


@pytest.mark.parametrize(("num_loc", "k"), [(2, 1), (2, 3), (6, 1), (6, 2), (6, 3), (6, 5)])
def test_step_bounds_are_reached(num_loc: int, k: int):
    """One vehicle for all needs the fewest steps, an order for each vehicle the most."""
    env = MDCPDPEnv()
    lengths = {len(s) for s in enumerate_solutions(env, make_instance(num_loc, [1] * k, seed=0))}
    td = env.reset(make_instance(num_loc, [1] * k, seed=0).unsqueeze(0))
    assert (min(lengths), max(lengths)) == env.step_bounds(dict(td.items()))


def test_rotations_change_manhattan_distances():
    """So they are rejected where costs are made of those; the symmetries of the square are not."""
    blocks, plane = MDCPDPEnv(dist_mode="L1"), MDCPDPEnv(dist_mode="L2")
    assert blocks.augmentations() == ("dihedral8",)
    blocks.check_augmentation("dihedral8")
    blocks.check_augmentation(lambda xy, num_augment: xy)
    with pytest.raises(UnsupportedError, match="costs, got 'symmetric'; use 'dihedral8'"):
        blocks.check_augmentation("symmetric")
    plane.check_augmentation("symmetric")


@pytest.mark.parametrize("dist_mode", ["L1", "L2"])
def test_contract_of_both_distances(dist_mode: str):
    """Rewards of augmented copies among other things."""
    check_env(MDCPDPEnv(generator_params={"num_loc": 6}, dist_mode=dist_mode))


def test_start_mode():
    """Only what policies see at first: it spreads over the depots and is the same every time."""
    generator = MDCPDPGenerator(num_loc=4, num_agents=4)
    instances = generator(400, torch.Generator().manual_seed(0))
    order = MDCPDPEnv(generator).reset(instances)
    assert (order["current_depot"] == 0).all()
    env = MDCPDPEnv(generator, start_mode="random")
    first = env.reset(instances)
    counts = first["current_depot"].bincount(minlength=4)
    assert counts.min() > 60  # 100 expected, standard deviation 8.7
    assert torch.equal(env.reset(instances)["current_depot"], first["current_depot"])
    assert torch.equal(env.reset(instances[7:8])["current_depot"], first["current_depot"][7:8])
    assert torch.equal(first["action_mask"], order["action_mask"])
    assert torch.equal(first["current_node"], first["current_depot"])


# ---------------------------------------------------------------- check


def test_check_agrees_with_the_oracle():
    """All orders of the four customers of two vehicles, cut in two in all ways."""
    env, k = MDCPDPEnv(), 2
    instance = make_instance(4, [1, 2], seed=0)
    td = env.reset(instance.unsqueeze(0))
    feasible = {frozenset(routes.items()) for routes in all_solutions(4, [1, 2])}
    verdicts = []
    for order in itertools.permutations(range(2, 6)):
        for cut in range(5):
            actions = [0, *order[:cut], 0, 1, *order[cut:]]
            good = frozenset(split_routes(actions, k).items()) in feasible
            verdicts.append(good)
            if good:
                env.check_solution_validity(td, torch.tensor([actions]))
            else:
                with pytest.raises(InvalidSolutionError):
                    env.check_solution_validity(td, torch.tensor([actions]))
    assert 0 < sum(verdicts) < len(verdicts)


def test_vehicles_may_come_and_go_empty():
    """The published environment lets the first vehicle turn round at once: free, and valid."""
    env = MDCPDPEnv(problem_mode="close")
    td = env.reset(make_instance(2, [1, 1], seed=0).unsqueeze(0))
    plain, detour = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 0, 1, 2, 3]])
    rewards = [env.get_reward(td, a, check_solution=True).item() for a in (plain, detour)]
    assert rewards[0] == pytest.approx(rewards[1], rel=1e-6)


def test_zeros_behind_the_end_are_padding():
    """Solutions of TorchRL's mode are filled up with zeros, whatever the last depot was."""
    env = MDCPDPEnv(problem_mode="close")
    td = env.reset(make_instance(2, [1, 1], seed=0).unsqueeze(0))
    rewards = [
        env.get_reward(td, torch.tensor([[1, 2, 3, *fill]]), check_solution=True).item()
        for fill in ([], [1], [0], [0, 0, 0], [1, 1])
    ]
    assert rewards == pytest.approx([rewards[0]] * 5, rel=1e-6)


# ---------------------------------------------------------------- real instances


def test_best_known_routes_of_real_instances(shared_dir: Path):
    """A Li & Lim solution, its time windows aside, is allowed and has the listed distance."""
    files = sorted((shared_dir / "data" / "pdptw" / "100").glob("*.sol"))[::9]
    if not files:
        pytest.skip("no PDPTW instances in the shared folder")
    env = MDCPDPEnv(problem_mode="close", reward_mode="minsum", check_action=True)
    for file in files:
        known = read_instance(file.with_suffix(".txt"))
        places = torch.as_tensor(known.coordinates, dtype=torch.float32)
        partner, routes = dict(known.pairs.tolist()), known.best_solution
        pickups = [node for route in routes for node in route if node in partner]
        nodes, k = [*pickups, *(partner[node] for node in pickups)], len(routes)
        instance = TensorDict(
            {
                "depot": places[:1].expand(k, 2),
                "locs": places[nodes],
                "capacity": torch.full((k,), len(pickups)),
                "lateness_weight": torch.zeros(1),
            },
            batch_size=[],
        )
        actions = [
            action
            for depot, route in enumerate(routes)
            for action in (depot, *(k + nodes.index(node) for node in route), depot)
        ][:-1]
        td = initial = env.reset(instance.unsqueeze(0))
        for action in actions:
            td = env.step(td.set("action", torch.tensor([action])))["next"]
        assert td["done"].all()
        cost = -env.get_reward(initial, torch.tensor([actions]), check_solution=True).item()
        assert cost == pytest.approx(known.best_known, abs=0.02)


# ---------------------------------------------------------------- generator


def test_generator_defaults():
    """Twenty customers, five depots, uniform; three orders at a time; lateness alone counts."""
    instances = MDCPDPGenerator()(500, torch.Generator().manual_seed(0))
    assert set(instances.keys()) == {"locs", "depot", "capacity", "lateness_weight"}
    assert instances["locs"].shape == (500, 20, 2)
    assert instances["depot"].shape == (500, 5, 2)
    for key in ("locs", "depot"):
        assert instances[key].min() >= 0
        assert instances[key].max() <= 1
        assert instances[key].mean().item() == pytest.approx(0.5, abs=0.02)
        assert instances[key].var().item() == pytest.approx(1 / 12, rel=0.05)
    assert instances["capacity"].dtype == torch.int64
    assert instances["capacity"].shape == (500, 5)
    assert (instances["capacity"] == 3).all()
    assert instances["lateness_weight"].shape == (500, 1)
    assert (instances["lateness_weight"] == 1).all()


def test_generator_ranges():
    """Capacities with both ends, weights between theirs, for any batch axes."""
    generator = MDCPDPGenerator(
        num_loc=2, num_agents=3, min_capacity=2, max_capacity=4,
        min_lateness_weight=0.2, max_lateness_weight=0.6,
    )  # fmt: skip
    instances = generator([50, 20], torch.Generator().manual_seed(0))
    assert instances.batch_size == (50, 20)
    share = instances["capacity"].flatten().bincount(minlength=5) / 3000
    assert share.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3], abs=0.04)
    weight = instances["lateness_weight"]
    assert 0.2 <= weight.min() < 0.22
    assert 0.58 < weight.max() <= 0.6


@pytest.mark.parametrize("batch", [[], [1], [3, 2]])
def test_single_depot(batch: list[int]):
    """All vehicles at one place, another one in each instance."""
    generator = MDCPDPGenerator(num_loc=2, num_agents=4, depot_mode="single")
    depot = generator(batch, torch.Generator().manual_seed(0))["depot"]
    assert depot.shape == (*batch, 4, 2)
    assert (depot == depot[..., :1, :]).all()
    places = depot[..., 0, :].reshape(-1, 2)
    assert len(places.unique(dim=0)) == len(places)


# ---------------------------------------------------------------- plots


def test_plot():
    """A line for each route, a dashed one for each way home, and the objective in the title."""
    env = MDCPDPEnv(MDCPDPGenerator(num_loc=6, num_agents=3), problem_mode="close")
    td = env.reset(batch_size=1)
    actions = torch.tensor([[0, 3, 6, 0, 2, 4, 7, 5, 8, 2, 2]])
    cost = -env.get_reward(td, actions).item()
    axes = env.render(td, actions).axes[0]
    assert axes.get_title() == f"3 orders · 2 routes · cost {cost:.3f}"
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 2, 5, 2]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["depot 0", "depot 2", "pickup", "delivery", "depot"]
    open_env = MDCPDPEnv(MDCPDPGenerator(num_loc=6, num_agents=3))
    assert len(open_env.render(td, actions).axes[0].lines) == 2
    assert env.render(td).axes[0].get_title() == "3 orders"
