"""Facility location and maximum coverage choose k of 7 candidates; both against plain Python."""

from __future__ import annotations

import itertools

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import pytest
import torch

from tensordict import TensorDict

from rl4co.decoding.rollout import random_policy, rollout
from rl4co.envs import FLPEnv, MCPEnv, MCPGenerator
from rl4co.envs.testing import enumerate_solutions
from tests.unit.envs.routing_oracle import euclidean

SIZE = 7
SMALL = {"num_items": 12, "num_sets": SIZE, "min_size": 1, "max_size": 4}


def places(*numbers: int, seed: int = 0) -> TensorDict:
    """An instance for each number of facilities."""
    rng = torch.Generator().manual_seed(seed)
    locs = torch.rand(len(numbers), SIZE, 2, generator=rng)
    return TensorDict({"locs": locs, "to_choose": torch.tensor(numbers)}, [len(numbers)])


def nearness(instance: TensorDict, chosen: Collection[int]) -> float:
    """Every customer goes to its nearest facility."""
    return -float(euclidean(instance["locs"])[list(chosen)].min(0).sum())


def sets(*numbers: int, seed: int = 0) -> TensorDict:
    """An instance for each number of sets."""
    td = MCPGenerator(**SMALL)(len(numbers), rng=torch.Generator().manual_seed(seed))
    return td.set("n_sets_to_choose", torch.tensor(numbers).float().unsqueeze(-1))


def coverage(instance: TensorDict, chosen: Collection[int]) -> float:
    """The union of Python sets."""
    items = set().union(*(instance["membership"][s].long().tolist() for s in chosen)) - {0}
    return sum(float(instance["weights"][item - 1]) for item in items)


class Problem(NamedTuple):
    env: Any
    draw: Callable[..., TensorDict]
    value: Callable[[TensorDict, Collection[int]], float]
    #: The reward by what the last state remembers.
    remembered: Callable[[TensorDict, TensorDict], torch.Tensor]


BOTH = pytest.mark.parametrize(
    "problem",
    [
        Problem(FLPEnv(), places, nearness, lambda td, final: -final["distances"].sum(-1)),
        Problem(
            MCPEnv(), sets, coverage, lambda td, final: (td["weights"] - final["weights"]).sum(-1)
        ),
    ],
    ids=lambda problem: problem.env.name,
)


@BOTH
def test_numbers_to_choose_may_differ_in_a_batch(problem: Problem):
    """Each instance ends after its own number; further steps change nothing."""
    env, instances = problem.env, problem.draw(1, 3, 7)
    td = env.reset(instances)
    reward, final, actions = rollout(env, td, random_policy)
    assert actions.shape == (3, 7)
    assert final["chosen"].sum(-1).tolist() == [1, 3, 7]
    torch.testing.assert_close(problem.remembered(instances, final), reward)
    for b, count in enumerate([1, 3, 7]):
        own = actions[b, :count]
        assert float(reward[b]) == pytest.approx(problem.value(instances[b], own.tolist()), 1e-5)
        alone = env.get_reward(env.reset(instances[b : b + 1]), own.unsqueeze(0))
        assert torch.equal(alone, reward[b : b + 1])
    other = actions.roll(1, 0)  # rewards are made of the actions, whatever the state says
    both = (env.get_reward(state, other, check_solution=False) for state in (final, td))
    assert torch.equal(*both)


@BOTH
def test_mask_allows_all_pairs(problem: Problem):
    """In both orders, each with its value."""
    instance = problem.draw(2)[0]
    solutions = enumerate_solutions(problem.env, instance)
    assert sorted(map(tuple, solutions)) == [*itertools.permutations(range(SIZE), 2)]
    td = problem.env.reset(instance.expand(len(solutions)))
    rewards = problem.env.get_reward(td, torch.tensor(solutions), check_solution=True)
    expected = [problem.value(instance, pair) for pair in solutions]
    assert rewards.tolist() == pytest.approx(expected, rel=1e-5)


@BOTH
def test_gains_are_differences_of_rewards(problem: Problem):
    instances = problem.draw(2, 2)
    td = problem.env.reset(instances)
    state = problem.env.step(td.set("action", torch.tensor([3, 5])))["next"]
    gains = problem.env.action_gains(dict(state.items()))  # [B, N]
    for b, first in enumerate([3, 5]):
        before = problem.value(instances[b], [first])
        after = [problem.value(instances[b], {first, node}) for node in range(SIZE)]
        expected = [value - before for value in after]
        assert gains[b].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@BOTH
@pytest.mark.parametrize("number", [1, 3, 7])
def test_local_search_ends_where_no_exchange_helps(problem: Problem, number: int):
    """Never worse than before, valid, and no exchange of one candidate is better."""
    instances = problem.draw(*[number] * 4, seed=number)
    td = problem.env.reset(instances)
    reward, _, actions = rollout(problem.env, td, random_policy)
    improved = problem.env.local_search(td, actions)
    better = problem.env.get_reward(td, improved, check_solution=True)
    assert (better >= reward - 1e-6).all()
    for instance, own in zip(instances, improved.tolist(), strict=True):
        value = problem.value(instance, own)
        for place, new in itertools.product(range(number), set(range(SIZE)) - set(own)):
            swapped = [new if i == place else old for i, old in enumerate(own)]
            assert problem.value(instance, swapped) <= value + 1e-6
