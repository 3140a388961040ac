"""Improvement environments: moves against walks along the tour, first solutions, bad input."""

from __future__ import annotations

import copy
import functools
import itertools

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    InvalidActionError,
    InvalidInstanceError,
    InvalidSolutionError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.rng import derive_generator
from rl4co.envs import PDPEnv, PDPRuinRepairEnv, TSPEnv, TSPkoptEnv, check_env
from rl4co.envs.checks import find_faults, rules_for
from rl4co.envs.cost_curve import render_costs
from rl4co.envs.routing._exchange import ADDED, REMOVED
from rl4co.envs.routing.tsp_kopt.moves import cut_mask, k_opt, positions_from, two_opt
from rl4co.envs.successors import (
    order_from_successors,
    order_from_tour,
    predecessors,
    successors_from_tour,
    tour_from_order,
    tour_from_visits,
)
from rl4co.models import REINFORCE, AttentionModelPolicy
from rl4co.utils.decoding import random_policy, rollout

SQUARE = TensorDict(
    {"locs": torch.tensor([[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]])}, batch_size=[1]
)
VARIANTS = {
    "2-opt": lambda size, **kw: TSPkoptEnv(generator_params={"num_loc": size}, **kw),
    "4-opt": lambda size, **kw: TSPkoptEnv(generator_params={"num_loc": size}, k_max=4, **kw),
    "2-opt by cuts": lambda size, **kw: TSPkoptEnv(
        generator_params={"num_loc": size}, two_opt_mode=False, **kw
    ),
    "orders": lambda size, **kw: PDPRuinRepairEnv(generator_params={"num_loc": size}, **kw),
}


def walk(successors: list[int], start: int = 0) -> list[int]:
    """Nodes met until the walk is back at its start."""
    nodes, here = [start], successors[start]
    while here != start and len(nodes) <= len(successors):
        nodes.append(here)
        here = successors[here]
    return nodes


def random_tours(count: int, size: int, seed: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(size, generator=rng) for _ in range(count)])


# ---------------------------------------------------------------- forms of tours


@given(size=st.integers(1, 70), seed=st.integers(0, 10**6))
def test_forms_of_a_tour(size: int, seed: int):
    """Successors, positions and tours say the same; pointer doubling agrees with a walk."""
    tour = random_tours(3, size, seed)
    successors = successors_from_tour(tour)
    order, closed = order_from_successors(successors)
    assert closed.all()
    for b in range(3):
        assert tour_from_order(order)[b].tolist() == walk(successors[b].tolist())
    assert torch.equal(order, order_from_tour(tour))
    assert torch.equal(predecessors(successors).gather(-1, successors)[0], torch.arange(size))


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5), seed=st.integers(0, 10**6))
def test_several_tours_are_not_one(sizes: list[int], seed: int):
    tours = random_tours(1, sum(sizes), seed)[0].split(sizes)
    successors = torch.empty(sum(sizes), dtype=torch.int64)
    for tour in tours:
        successors[tour] = tour.roll(-1)
    assert not order_from_successors(successors)[1]


def test_visits_of_constructive_policies():
    """The depot is put in front where it is no action."""
    assert tour_from_visits(torch.tensor([[2, 1]]), 3).tolist() == [[0, 2, 1]]
    assert tour_from_visits(torch.tensor([[1, 0, 2]]), 3).tolist() == [[1, 0, 2]]
    with pytest.raises(ConfigError, match="all 5 nodes"):
        tour_from_visits(torch.tensor([[1, 0, 2]]), 5)


# ---------------------------------------------------------------- moves


@given(size=st.integers(3, 12), seed=st.integers(0, 10**6))
def test_two_opt_reverses_the_path(size: int, seed: int):
    rng = np.random.default_rng(seed)
    tour = rng.permutation(size)
    first, second = rng.choice(size, 2, replace=False)
    start = int(np.flatnonzero(tour == first)[0])
    turned = np.roll(tour, -start).tolist()  # from `first` on
    length = turned.index(second) + 1
    expected = torch.tensor(turned[:length][::-1] + turned[length:])
    order = order_from_tour(torch.from_numpy(tour))
    moved = two_opt(order, torch.tensor(first), torch.tensor(second))
    assert torch.equal(moved, order_from_tour(expected))


@given(size=st.integers(4, 12), k=st.integers(2, 4), seed=st.integers(0, 10**6))
def test_k_opt_reverses_the_segments(size: int, k: int, seed: int):
    """Against lists that are cut and turned one by one; what follows the end does not count."""
    rng = np.random.default_rng(seed)
    tour = rng.permutation(size).tolist()
    places = [0, *sorted(rng.choice(np.arange(2, size), min(k - 1, size - 2), replace=False))]
    # A cut right behind the one before ends the move.
    count = next((i for i in range(1, len(places)) if places[i] == places[i - 1] + 1), len(places))
    expected = list(tour)
    for low, high in itertools.pairwise(places[:count]):
        expected[low + 1 : high + 1] = tour[low + 1 : high + 1][::-1]
    cuts = [tour[p] for p in places]
    cuts[count + 1 :] = [cuts[0]] * len(cuts[count + 1 :])
    moved = k_opt(order_from_tour(torch.tensor(tour)), torch.tensor(cuts))
    assert torch.equal(moved, order_from_tour(torch.tensor(expected)))


def test_cut_masks_by_hand():
    """Tour 0 1 2 3 4, first cut behind node 3: positions from it are 3:0 4:1 0:2 1:3 2:4."""
    along = positions_from(torch.arange(5), torch.tensor(3))
    assert along.tolist() == [2, 3, 4, 0, 1]
    # Number 1: neither node 3 nor node 2, its predecessor.
    assert cut_mask(along, torch.tensor(3), 1).tolist() == [True, True, False, False, True]
    # Number 2, behind node 0: nodes 1 (which ends the move) and 2.
    assert cut_mask(along, torch.tensor(0), 2).tolist() == [False, True, True, False, False]
    # Behind node 2 only node 3 is left, which ends the move.
    assert cut_mask(along, torch.tensor(2), 2).tolist() == [False, False, False, True, False]


@given(orders=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_an_order_is_taken_out_and_put_in(orders: int, seed: int):
    """Against lists: remove both nodes, insert the delivery behind k, then the pickup behind j."""
    env, rng = VARIANTS["orders"](2 * orders), derive_generator(seed)
    td = env.reset(env.generator(1, rng=rng), initial="random", rng=rng)
    for _ in range(4):
        td["action"] = env.random_action(dict(td.items()), rng)
        pair, j, k = td["action"][0].tolist()
        tour = tour_from_order(td["visited_time"])[0].tolist()
        left = [node for node in tour if node not in (pair + 1, pair + 1 + orders)]
        left.insert(left.index(k) + 1, pair + 1 + orders)
        left.insert(left.index(j) + 1, pair + 1)
        td = env.step(td)["next"]
        assert tour_from_order(td["visited_time"])[0].tolist() == left


@pytest.mark.parametrize("variant", VARIANTS)
@given(size=st.sampled_from([4, 6, 8]), seed=st.integers(0, 10**6))
def test_random_runs(variant: str, size: int, seed: int):
    """Valid solutions, true costs, rewards that add up to the gain."""
    env, rng = VARIANTS[variant](size, check_action=True), derive_generator(seed)
    td = env.reset(env.generator(3, rng=rng), initial="random", rng=rng)
    start, total = td["cost_current"], torch.zeros(3)
    for _ in range(10):
        td["action"] = env.random_action(dict(td.items()), rng)
        td = env.step(td)["next"]
        total += td["reward"].squeeze(-1)
        locs = td["locs"].double().numpy()
        for b in range(3):
            nodes = walk(td["rec_current"][b].tolist())
            assert sorted(nodes) == list(range(locs.shape[1]))
            legs = locs[b, nodes] - locs[b, np.roll(nodes, -1)]
            length = np.hypot(legs[:, 0], legs[:, 1]).sum()
            assert float(td["cost_current"][b]) == pytest.approx(length, rel=1e-5)
        env.check_solution_validity(td)
    torch.testing.assert_close(total, start - td["cost_bsf"], atol=1e-5, rtol=1e-5)


def test_the_last_move_is_not_undone():
    env = TSPkoptEnv(check_action=True)
    td = env.reset(SQUARE)
    td["action"] = torch.tensor([[1, 3]])
    td = env.step(td)["next"]
    assert not env.pair_mask(dict(td.items()))[0, [1, 3], [3, 1]].any()
    for again in ([1, 3], [3, 1], [2, 2], [0, 4], [-1, 0]):
        td["action"] = torch.tensor([again])
        with pytest.raises(InvalidActionError, match="forbidden ones in instances 0"):
            env.step(td)


def test_the_mask_of_an_instance_is_its_own():
    """Which order was moved last in one instance does not matter to the others."""
    env = VARIANTS["orders"](6)
    td = env.reset(batch_size=2)
    td["action"] = torch.tensor([[0, 0, 0], [2, 0, 0]])
    td = env.step(td)["next"]
    assert env.removal_mask(dict(td.items())).tolist() == [[False, True, True], [True, True, False]]
    assert td["action_record"].tolist() == [[-1] * 5 + [0], [-1] * 5 + [2]]


def test_published_actions_list_more_than_needed():
    """Three times as many numbers for k-opt, of which the first are the cuts."""
    env = VARIANTS["4-opt"](8)
    td = env.reset(batch_size=2)
    cuts = env.random_action(dict(td.items()))
    long = torch.cat([cuts, torch.zeros(2, 8, dtype=torch.int64)], -1).to(torch.int16)
    one, other = (env.step(td.copy().set("action", a))["next"] for a in (cuts, long))
    assert torch.equal(one["rec_current"], other["rec_current"])
    assert torch.equal(other["last_action"], cuts)


# ---------------------------------------------------------------- first solutions


def test_greedy_tours_by_hand():
    """From node 0 to the nearest: 0, 1 (0.1 away), 2 (0.3), 3; an order is picked up first."""
    locs = torch.tensor([[[0.0, 0.0], [0.1, 0.0], [0.4, 0.0], [1.0, 0.0]]])
    td = TSPkoptEnv().reset(TensorDict({"locs": locs}, [1]), initial="greedy")
    assert td["rec_current"].tolist() == [[1, 2, 3, 0]]
    orders = {"depot": torch.zeros(1, 2), "locs": torch.tensor([[[1.0, 0.0], [0.1, 0.0]]])}
    td = PDPRuinRepairEnv().reset(TensorDict(orders, [1]), initial="greedy")
    assert td["rec_current"].tolist() == [[1, 2, 0]]


def test_first_solutions_come_from_the_stream():
    env = TSPkoptEnv()
    instances = env.generator(4, rng=derive_generator(0))
    states = [env.reset(instances, rng=derive_generator(s))["rec_current"] for s in (1, 1, 2)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    greedy = TSPkoptEnv(generator_params={"init_sol_type": "greedy"}).reset(instances)
    assert torch.equal(greedy["rec_best"], env.reset(instances, initial="greedy")["rec_best"])


@pytest.mark.parametrize(
    ("env", "constructive"), [(TSPkoptEnv(), TSPEnv), (PDPRuinRepairEnv(), PDPEnv)]
)
def test_first_solutions_of_a_policy(env, constructive):
    """Anything that is called like a constructive policy."""

    def policy(td, env, phase, decode_type="greedy"):
        assert isinstance(env, constructive)
        assert (phase, decode_type) == ("test", "sampling")
        steps = env.step_bounds(dict(td.items()))[1]
        first = int(td["action_mask"][0].long().argmax())
        return {"actions": torch.arange(first, first + steps).expand(2, -1)}

    td = env.reset(batch_size=2, initial=functools.partial(policy, decode_type="sampling"))
    size = td["locs"].shape[-2]
    assert td["rec_current"].tolist() == [[*range(1, size), 0]] * 2


def test_a_constructive_policy_is_left_as_it_was():
    """Used in evaluation mode without gradients, sampling from the given stream alone."""
    env = TSPkoptEnv(generator_params={"num_loc": 8})
    instances = env.generator(4, rng=derive_generator(0))
    sizes = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 1}
    policy = AttentionModelPolicy(env_name="tsp", **sizes)
    before = copy.deepcopy(policy.state_dict())
    sampled = functools.partial(policy, decode_type="sampling")
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(found))
        td = env.reset(instances, initial=sampled, rng=derive_generator(seed))
        found.append(td["rec_current"])
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert policy.training
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
    with pytest.raises(ConfigError, match="say select_best=True"):
        env.reset(instances, initial=functools.partial(policy, decode_type="multistart_greedy"))
    with pytest.raises(ConfigError, match=r"got the model REINFORCE; pass its \.policy"):
        env.reset(instances, initial=REINFORCE(TSPEnv(), policy, baseline="no"))


@pytest.mark.parametrize("variant", ["2-opt", "orders"])
def test_classical_solvers_give_successors(variant: str):
    """Those of the constructive environment; nothing is better than an optimal solution."""
    env = VARIANTS[variant](6)
    td = env.reset(batch_size=2, initial="greedy")
    instances = env.instances_of(td)
    assert torch.equal(env.reset(instances, initial="greedy")["rec_best"], td["rec_best"])
    solutions, costs = env.solve(instances, max_runtime=0.2, initial=td["rec_best"])
    torch.testing.assert_close(env.get_reward(td, solutions), -costs)
    assert (costs <= td["cost_bsf"] + 1e-5).all()
    visits = env.constructive_actions(solutions)
    reward = env.constructive_env.get_reward(env.constructive_env.reset(instances), visits)
    torch.testing.assert_close(reward, -costs)


def test_setting_back_and_forgetting():
    env, rng = TSPkoptEnv(), derive_generator(3)
    td = env.reset(batch_size=4, initial="greedy")
    for _ in range(3):
        td["action"] = env.random_action(dict(td.items()), rng)
        td = env.step(td)["next"]
    state = dict(td.items())
    some = torch.tensor([True, False, True, False])
    back = env.restart_from_best(state, some)
    assert torch.equal(back["rec_current"][some], state["rec_best"][some])
    assert torch.equal(back["rec_current"][~some], state["rec_current"][~some])
    assert torch.equal(back["cost_current"][some], state["cost_bsf"][some])
    assert torch.equal(order_from_successors(back["rec_current"])[0], back["visited_time"])
    forgot = env.forget_best(state)
    assert torch.equal(forgot["cost_bsf"], state["cost_current"])
    assert torch.equal(forgot["rec_best"], state["rec_current"])


# ---------------------------------------------------------------- bad input


def test_first_solutions_that_are_none():
    env = TSPkoptEnv()
    with pytest.raises(InvalidSolutionError, match="one closed tour"):
        env.reset(SQUARE, initial=torch.tensor([[1, 0, 3, 2]]))
    with pytest.raises(ConfigError, match=r"successors of shape \[1, 4\]"):
        env.reset(SQUARE, initial=torch.tensor([[1, 2, 0]]))
    with pytest.raises(ConfigError, match="integer successors"):
        env.reset(SQUARE, initial=torch.tensor([[1.0, 2.0, 3.0, 0.0]]))
    with pytest.raises(ConfigError, match="as a tensor of successors or from a policy, got int"):
        env.reset(SQUARE, initial=5)
    with pytest.raises(
        UnknownNameError, match="no initial solution 'greedi'; did you mean 'greedy'"
    ):
        env.reset(SQUARE, initial="greedi")
    orders = VARIANTS["orders"](2)
    with pytest.raises(InvalidSolutionError, match="pickup precedes"):
        orders.reset(batch_size=1, initial=torch.tensor([[2, 0, 1]]))


def test_k_above_the_number_of_nodes():
    env = TSPkoptEnv(k_max=5)
    with pytest.raises(ConfigError, match="at most the 4 nodes"):
        env.reset(SQUARE)
    with pytest.raises(ConfigError, match="two_opt_mode"):
        TSPkoptEnv(k_max=3, two_opt_mode=True)


def test_actions_of_another_form():
    env = TSPkoptEnv()
    td = env.reset(SQUARE)
    for action in (torch.tensor([1]), torch.tensor([[1, 2, 3]]), torch.tensor([[1.0, 2.0]])):
        with pytest.raises(InvalidActionError, match=r"integer action of shape \[1, 2\]"):
            env.step(td.copy().set("action", action))
    with pytest.raises(InvalidActionError, match="got none"):
        env.step(td)
    with pytest.raises(UnknownNameError, match="no argument of reset 'inital'"):
        env.reset(SQUARE, inital="greedy")


def test_what_has_no_meaning_is_rejected():
    env = TSPkoptEnv()
    td = env.reset(SQUARE)
    with pytest.raises(UnsupportedError, match="do not terminate"):
        env.step_bounds(dict(td.items()))
    with pytest.raises(UnsupportedError, match="no single mask"):
        env.get_action_mask(td)
    with pytest.raises(InvalidInstanceError, match="at least 3 nodes"):
        env.reset(TensorDict({"locs": torch.rand(1, 2, 2)}, [1]))


# ---------------------------------------------------------------- TorchRL


@pytest.mark.parametrize("variant", VARIANTS)
def test_torchrl_rolls_out(variant: str):
    """As many steps as asked for; rewards add up to the gain."""
    env = VARIANTS[variant](6, _torchrl_mode=True)
    out = env.rollout(max_steps=7)
    assert out.batch_size == (7,)
    gain = out["cost_bsf"][0] - out["next", "cost_bsf"][-1]
    torch.testing.assert_close(out["next", "reward"].sum(), gain, atol=1e-5, rtol=1e-5)
    given = env.generator(1)[0]
    td = env.reset(given, initial="greedy")
    torch.testing.assert_close(td["locs"][-1], given["locs"][-1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_rollout_of_some_moves(variant: str):
    """As many as asked for; the reward is that of the best solution."""
    env = VARIANTS[variant](6)
    td = env.reset(batch_size=3)
    before = td.clone()
    reward, final, actions = rollout(env, td, env.rand_action, max_steps=5)
    assert all(torch.equal(td[key], before[key]) for key in before.keys())
    assert actions.shape == (3, 5, td["last_action"].shape[-1])
    assert torch.equal(reward, -final["cost_bsf"])
    assert final["i"].tolist() == [[5]] * 3
    with pytest.raises(ConfigError, match="max_steps"):
        rollout(env, td, env.rand_action)
    with pytest.raises(ConfigError, match=r"env\.rand_action is a random policy"):
        rollout(env, td, random_policy, max_steps=2)
    with pytest.raises(ConfigError, match="writes td"):
        rollout(env, td, lambda td: {"actions": None}, max_steps=2)
    for action in (torch.full_like(td["last_action"], 99), torch.zeros(3, 1, dtype=torch.int64)):
        with pytest.raises(InvalidActionError):
            rollout(env, td, lambda td, action=action: td.set("action", action), max_steps=2)
    assert rollout(TSPEnv(), TSPEnv().reset(batch_size=2), random_policy)[2].shape == (2, 20)


# ---------------------------------------------------------------- the contract can fail


class ForgetsTheDirection(TSPkoptEnv):
    """Node 0 may end up anywhere."""

    def _move(self, state, action):
        return (super()._move(state, action) + 1) % state["visited_time"].shape[-1]


class BreaksOrders(PDPRuinRepairEnv):
    """The delivery takes the place of the pickup."""

    def _move(self, state, action):
        order = super()._move(state, action)
        pickup = action[..., :1] + 1
        ends = torch.cat([pickup, pickup + order.shape[-1] // 2], -1)
        return order.scatter(-1, ends, order.gather(-1, ends.flip(-1)))


class PaysForLosses(TSPkoptEnv):
    """Rewards are differences of current costs."""

    def advance(self, state, action):
        new = super().advance(state, action)
        return {**new, "reward": (state["cost_current"] - new["cost_current"]).unsqueeze(-1)}


class AcceptsSubTours(TSPkoptEnv):
    """Only asks for a permutation."""

    def _violations(self, state, actions):
        nodes = torch.arange(actions.shape[-1])
        wrong = (actions.sort(-1).values != nodes).any(-1)
        return {"the successors form one closed tour": wrong}


class LooksAtTheFirst(PDPRuinRepairEnv):
    """Masks by what the first instance of the batch did, as the original code does."""

    def removal_mask(self, state):
        last = state["last_action"]
        return super().removal_mask({**state, "last_action": last[:1].expand_as(last)})

    def _remember(self, state, action):
        return super()._remember(state, action[:1].expand_as(action))


class AsksForNumbers(TSPkoptEnv):
    """Turns a tensor into a Python number in every move."""

    def _move(self, state, action):
        return super()._move(state, action) + int(action.max()) * 0


@pytest.mark.parametrize(
    ("env_cls", "rule"),
    [
        (AsksForNumbers, "no hook asks the device for a value"),
        (ForgetsTheDirection, "positions are those of the current solution"),
        (BreaksOrders, "every allowed move gives a valid solution"),
        (PaysForLosses, "a step earns what it gains over the best so far"),
        (AcceptsSubTours, "sub-tours and repeated nodes are rejected"),
        (LooksAtTheFirst, "an instance does not depend on its batch mates"),
    ],
)
def test_broken_environments_are_found(env_cls, rule):
    env = env_cls(generator_params={"num_loc": 6})
    assert rule in find_faults(env)
    assert rule in rules_for(env)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_variants_keep_the_contract(variant: str):
    check_env(VARIANTS[variant](6))


def test_the_rules_are_those_of_the_kind():
    assert "there is no end" in rules_for(TSPkoptEnv())
    assert "there is no end" not in rules_for(TSPEnv())


# ---------------------------------------------------------------- figures


@pytest.mark.parametrize("variant", ["2-opt", "orders"])
def test_figure_of_a_move(variant: str):
    """Removed and added edges in their colours, both costs in the title."""
    env, rng = VARIANTS[variant](8), derive_generator(5)
    td = env.reset(batch_size=2, initial="greedy")
    action = env.random_action(dict(td.items()), rng)
    after = env.step(td.copy().set("action", action))["next"]
    figure = env.render(td, action, index=1)
    lines = figure.axes[0].get_lines()
    colors = [line.get_color() for line in lines]
    assert colors.count(REMOVED) == colors.count(ADDED) > 0
    before, then = float(td["cost_current"][1]), float(after["cost_current"][1])
    assert figure.axes[0].get_title().endswith(f"cost {before:.3f} → {then:.3f}")
    with pytest.raises(InvalidActionError, match="integer action of shape"):
        env.render(td, td["rec_best"])
    still = env.render(td, index=1)
    assert ADDED not in [line.get_color() for line in still.axes[0].get_lines()]


def test_figure_of_costs():
    figure = render_costs({"a": [3.0, 2.0], "b": [3.0, 3.0]}, reference=1.0)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "a", "b", "reference",
    ]  # fmt: skip
    timed = render_costs([3.0, 2.0], [3.0, 4.0], times=[0.0, 0.5])
    assert timed.axes[0].get_xlabel() == "seconds"
    with pytest.raises(ConfigError, match="mean over instances"):
        render_costs(torch.rand(3, 4))
    with pytest.raises(ConfigError, match="each of 2 steps, got shape"):
        render_costs([3.0, 2.0], [3.0])
    with pytest.raises(ConfigError, match="times of the curves a, b, got those of a"):
        render_costs({"a": [3.0], "b": [2.0]}, times=[0.0])
