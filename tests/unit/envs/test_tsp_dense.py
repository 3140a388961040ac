"""TSP with dense rewards: what each step earns, and that it adds up."""

from __future__ import annotations

import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.rng import derive_generator
from rl4co.envs import DenseRewardTSPEnv, TSPEnv
from rl4co.envs.contract.evidence import record_episode

# Sides 3 and 4, diagonal 5.
TRIANGLE = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]])


def step_rewards(env: TSPEnv, td: TensorDict, tour: list[int]) -> list[float]:
    rewards = []
    for node in tour:
        td = env.step(td.set("action", torch.tensor([node])))["next"]
        assert td["reward"].shape == (1, 1)
        rewards.append(td["reward"].item())
    return rewards


def test_each_step_earns_its_leg():
    """Nothing, the first leg, then the second leg and the way back."""
    env = DenseRewardTSPEnv()
    td = env.reset(TensorDict({"locs": TRIANGLE[None]}, batch_size=1))
    assert td["reward"].item() == 0.0
    assert step_rewards(env, td, [1, 0, 2]) == [0.0, -3.0, -(5.0 + 4.0)]
    # The first step is free from any node, not only from node 0.
    td = env.reset(TensorDict({"locs": TRIANGLE[None]}, batch_size=1))
    assert step_rewards(env, td, [2, 1, 0]) == [0.0, -4.0, -(3.0 + 5.0)]


def test_asymmetric_costs_and_diagonal():
    """Row to column; what stands on the diagonal is not travelled."""
    costs = torch.tensor([[[9.0, 1.0, 7.0], [5.0, 9.0, 2.0], [3.0, 9.0, 9.0]]])
    env = DenseRewardTSPEnv()
    td = env.reset(TensorDict({"cost_matrix": costs}, batch_size=1))
    assert step_rewards(env, td, [1, 2, 0]) == [0.0, -2.0, -(3.0 + 1.0)]


@given(
    size=st.integers(min_value=1, max_value=9),
    batch=st.lists(st.integers(min_value=1, max_value=3), max_size=2),
    seed=st.integers(min_value=0, max_value=2**32),
    matrix=st.booleans(),
)
def test_rewards_add_up_to_the_tsp(size: int, batch: list[int], seed: int, matrix: bool):
    """In both ways of stepping; the episode's reward is that of the TSP."""
    rng = derive_generator(seed)
    instances = TensorDict({"locs": torch.rand(*batch, size, 2, generator=rng)}, batch_size=batch)
    if matrix:
        instances["cost_matrix"] = torch.rand(*batch, size, size, generator=rng)
    env, tsp = DenseRewardTSPEnv(), TSPEnv()
    episode = record_episode(env, instances, rng)
    total = sum(state["reward"].squeeze(-1) for state in episode.states[1:])
    expected = tsp.get_reward(tsp.reset(instances), episode.actions)
    assert total.shape == tuple(batch)
    torch.testing.assert_close(total, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(env.get_reward(episode.initial, episode.actions), expected)


def test_torchrl_sees_the_same_rewards():
    """Its rollouts collect rewards of single steps, none of them at reset."""
    env = DenseRewardTSPEnv(generator_params={"num_loc": 6}, _torchrl_mode=True, seed=0)
    rollout = env.rollout(6, lambda td: td.set("action", td["action_mask"].int().argmax(-1)))
    rewards = rollout["next", "reward"].squeeze(-1)
    assert rewards[0] == 0.0
    assert (rewards[1:] < 0).all()
    actions = rollout["action"]
    own = TSPEnv().get_reward({"locs": rollout["locs"][0], "action_mask": torch.ones(6)}, actions)
    torch.testing.assert_close(rewards.sum(), own)
