"""Gymnasium's interface: its own checker, rewards, seeds, forbidden actions, batches, figures."""

from __future__ import annotations

import pytest
import torch

from rl4co.core.errors import (
    ConfigError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import ENVS
from rl4co.envs import DenseRewardTSPEnv, FJSPEnv, TSPEnv, TSPkoptEnv
from rl4co.envs.testing import improvement_names, make_sized_env

pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env, data_equivalence

from rl4co.envs.gymnasium import GymnasiumEnv, GymnasiumVectorEnv


def play(env: GymnasiumEnv, **options) -> tuple[float, dict, list]:
    """Sum of rewards, last info and observations of a random episode."""
    seen = [env.reset(**options)[0]]
    total, finished = 0.0, False
    while not finished:
        observation, reward, terminated, truncated, info = env.step(env.sample_allowed())
        assert not info["forbidden"] and env.observation_space.contains(observation)
        seen.append(observation)
        total, finished = total + reward, terminated or truncated
    return total, info, seen


@pytest.mark.filterwarnings("ignore:.*Box observation space|.*alternative render modes")
@pytest.mark.parametrize("name", ENVS.names())
def test_gymnasiums_checker_passes(name):
    """For every environment; the rewards of a random episode add up to what the solution gets."""
    inner = make_sized_env(name, 6)
    moves = 5 if name in improvement_names() else None
    env = GymnasiumEnv(inner, max_moves=moves)
    check_env(env, skip_render_check=True)
    total, info, seen = play(env, seed=3)
    again = play(env, seed=3)
    assert data_equivalence(seen, again[2]) and again[0] == total
    other = play(env)
    assert not data_equivalence(seen[0], other[2][0])
    if moves is None:
        assert total == pytest.approx(info["objective"], rel=1e-4, abs=1e-4)
    else:
        assert len(seen) == 6
        gain = seen[0]["cost_bsf"] - seen[-1]["cost_bsf"]
        assert total == pytest.approx(gain.item(), abs=1e-4)
        assert info["objective"] == pytest.approx(-seen[-1]["cost_bsf"].item(), rel=1e-5)


@pytest.mark.parametrize(
    "inner",
    [
        DenseRewardTSPEnv(generator_params={"num_loc": 5}),
        FJSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}, stepwise_reward=True),
    ],
)
def test_dense_rewards_come_step_by_step(inner):
    env = GymnasiumEnv(inner)
    env.reset(seed=1)
    rewards = [env.step(env.sample_allowed())[1] for _ in range(4)]
    assert sum(reward != 0 for reward in rewards) > 1


def test_solutions_are_those_of_the_environment():
    """The objective is `get_reward` of the solution on the instance that was given."""
    inner = TSPEnv(generator_params={"num_loc": 7})
    instance = inner.generator(1)
    _, info, _ = play(GymnasiumEnv(inner), options={"instance": instance[0]})
    reward = inner.get_reward(inner.reset(instance), torch.as_tensor(info["solution"])[None])
    assert info["objective"] == pytest.approx(float(reward))


def test_forbidden_actions_end_the_construction():
    env = GymnasiumEnv(TSPEnv(generator_params={"num_loc": 5}), forbidden_reward=-7.0)
    env.reset(seed=1)
    first = env.step(2)[0]
    assert env.action_masks().tolist() == [True, True, False, True, True]
    seen, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (-7.0, True, False)
    assert info == {"forbidden": True}
    assert data_equivalence(first, seen)
    with pytest.raises(ConfigError, match="call reset"):
        env.step(3)


def test_forbidden_moves_count_and_change_nothing():
    env = GymnasiumEnv(TSPkoptEnv(generator_params={"num_loc": 6}), max_moves=2)
    first, _ = env.reset(seed=1)
    seen, reward, terminated, truncated, info = env.step([3, 3])
    assert (reward, terminated, truncated, info) == (0.0, False, False, {"forbidden": True})
    assert data_equivalence(first, seen)
    *_, truncated, info = env.step(env.sample_allowed())
    assert truncated and sorted(info["solution"].tolist()) == list(range(6))
    with pytest.raises(UnsupportedError, match="sample_allowed"):
        env.action_masks()


def test_batches_begin_anew_one_by_one():
    """Episodes of different lengths: an ended one is replaced in the next step."""
    envs = GymnasiumVectorEnv(make_sized_env("cvrp", 4), num_envs=16)
    seen, _ = envs.reset(seed=5)
    over = torch.zeros(16, dtype=torch.bool).numpy()
    sums, ended, lengths = torch.zeros(16), 0, set()
    for _ in range(24):
        before, steps = seen, seen["i"][:, 0]
        seen, rewards, terminated, truncated, infos = envs.step(envs.sample_allowed())
        assert envs.observation_space.contains(seen)
        assert not truncated.any() and not infos["forbidden"].any()
        assert not rewards[over].any() and not terminated[over].any()
        assert (seen["i"][over] == 0).all()
        assert ((seen["locs"] == before["locs"]).all((1, 2)) != over).all()
        sums = torch.where(torch.as_tensor(over), 0.0, sums) + torch.as_tensor(rewards)
        for row in terminated.nonzero()[0]:
            assert infos["_objective"][row]
            assert sums[row] == pytest.approx(infos["objective"][row], rel=1e-4)
            ended += 1
            lengths.add(int(steps[row]))
        over = terminated
    assert ended > 16 and len(lengths) > 1
    again, _ = envs.reset(seed=5)
    assert data_equivalence(again, envs.reset(seed=5)[0])


def test_batches_of_moves_and_given_instances():
    inner = TSPkoptEnv(generator_params={"num_loc": 6})
    envs = GymnasiumVectorEnv(inner, num_envs=3, max_moves=2)
    instances = inner.generator(3)
    seen, _ = envs.reset(seed=1, options={"instances": instances})
    assert torch.equal(torch.as_tensor(seen["locs"]), instances["locs"])
    envs.step(envs.sample_allowed())
    *_, truncated, infos = envs.step(envs.sample_allowed())
    assert truncated.all() and infos["solution"].shape == (3, 6)
    seen = envs.step(envs.sample_allowed())[0]
    assert not torch.equal(torch.as_tensor(seen["locs"]), instances["locs"])


def test_figures():
    """Of the instance, then of the solution so far; one for each of a batch."""
    env = GymnasiumEnv(TSPEnv(generator_params={"num_loc": 5}), render_mode="rgb_array")
    env.reset(seed=1)
    empty = env.render()
    env.step(0), env.step(1)
    later = env.render()
    assert empty.shape == later.shape and empty.shape[-1] == 3 and (empty != later).any()
    inner = TSPkoptEnv(generator_params={"num_loc": 5})
    envs = GymnasiumVectorEnv(inner, num_envs=2, render_mode="rgb_array")
    envs.reset(seed=1)
    assert len(envs.render()) == 2
    assert GymnasiumEnv(inner).render() is None


def test_invalid_calls_are_rejected():
    inner = TSPEnv(generator_params={"num_loc": 5})
    with pytest.raises(ConfigError, match="get_env"):
        GymnasiumEnv("tsp")
    with pytest.raises(ConfigError, match="no max_moves for tsp"):
        GymnasiumEnv(inner, max_moves=3)
    with pytest.raises(UnknownNameError, match="human"):
        GymnasiumEnv(inner, render_mode="human")
    env = GymnasiumEnv(inner)
    with pytest.raises(ConfigError, match="call reset"):
        env.step(0)
    with pytest.raises(UnknownNameError, match="'instances'"):
        env.reset(options={"instances": None})
    with pytest.raises(ConfigError, match="as large as those of the generator"):
        env.reset(options={"instance": TSPEnv(generator_params={"num_loc": 6}).generator(1)})
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="integer actions"):
        env.step([1, 2])
