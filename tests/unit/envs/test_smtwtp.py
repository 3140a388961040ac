"""SMTWTP: all orders by brute force, rewards by hand, instances of the OR-Library."""

from __future__ import annotations

import itertools

from pathlib import Path

import numpy as np
import pytest
import torch

from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict

from rl4co.core.errors import ConfigError, FileFormatError, InvalidInstanceError
from rl4co.core.rng import derive_generator
from rl4co.data.formats.tardiness import read_best_tardiness, read_weighted_tardiness
from rl4co.decoding.rollout import random_policy, rollout
from rl4co.envs import SMTWTPEnv, SMTWTPGenerator, get_env
from rl4co.envs.testing import enumerate_solutions

KEYS = ("job_due_time", "job_weight", "job_process_time")


def weighted_tardiness(instance: TensorDict, order: list[int]) -> float:
    """Job after job, in plain Python."""
    due, weight, process = (instance[key].double().tolist() for key in KEYS)
    time = cost = 0.0
    for job in order:
        time += process[job]
        if time > due[job]:
            cost += weight[job] * (time - due[job])
    return cost


# ---------------------------------------------------------------- oracles


@pytest.mark.parametrize("num_job", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_mask_allows_all_orders_and_nothing_else(num_job, seed):
    """All permutations; the best of them is the best one by plain Python."""
    env = SMTWTPEnv(generator_params={"num_job": num_job})
    instance = env.generator([], rng=derive_generator("orders", seed))
    solutions = enumerate_solutions(env, instance)
    orders = list(itertools.permutations(range(1, num_job + 1)))
    assert sorted(map(tuple, solutions)) == orders
    td = env.reset(instance.expand(len(orders)))
    reward = env.get_reward(td, torch.tensor(orders), check_solution=True)
    expected = [-weighted_tardiness(instance, list(order)) for order in orders]
    np.testing.assert_allclose(reward.numpy(), expected, rtol=1e-5, atol=1e-6)


@given(num_job=st.integers(1, 12), seed=st.integers(0, 2**20))
def test_random_rollouts(num_job, seed):
    """They take a step for each job and cost what plain Python says."""
    env = SMTWTPEnv(generator_params={"num_job": num_job})
    td = env.reset(env.generator(4, rng=derive_generator("rollouts", seed)))
    reward, final, actions = rollout(env, td, random_policy)
    assert actions.shape == (4, num_job)
    for b in range(4):
        cost = weighted_tardiness(td[b], actions[b].tolist())
        assert -float(reward[b]) == pytest.approx(cost, rel=1e-5, abs=1e-5)
    torch.testing.assert_close(final["current_time"], td["job_process_time"].sum(-1, keepdim=True))


def test_state_follows_the_jobs():
    """The clock, the last job and the mask; the dummy is all that is left in the end."""
    env = SMTWTPEnv()
    instance = {
        "job_due_time": torch.tensor([[0.0, 1.0, 4.0]]),
        "job_weight": torch.tensor([[0.0, 1.0, 2.0]]),
        "job_process_time": torch.tensor([[0.0, 2.0, 3.0]]),
    }
    td = env.reset(TensorDict(instance, batch_size=[1]))
    assert td["action_mask"].tolist() == [[False, True, True]]
    td = env.step(td.set("action", torch.tensor([2])))["next"]
    assert (td["current_job"].item(), td["current_time"].item()) == (2, 3.0)
    assert td["action_mask"].tolist() == [[False, True, False]]
    td = env.step(td.set("action", torch.tensor([1])))["next"]
    assert td["done"].all() and td["current_time"].item() == 5.0
    assert td["action_mask"].tolist() == [[True, False, False]]
    for action in (0, 1):
        later = env.step(td.set("action", torch.tensor([action])))["next"]
        for key in set(td.keys()) - {"i", "action"}:
            assert torch.equal(later[key], td[key]), key


def test_figures():
    """A bar for each job in the order of the solution, and the cost in the title."""
    env = SMTWTPEnv(generator_params={"num_job": 6})
    td = env.reset(batch_size=3)
    reward, _, actions = rollout(env, td, random_policy)
    axes = env.render(td, actions, index=1).axes[0]
    bars = sorted(
        (round(bar.get_y() + bar.get_height() / 2), bar.get_x() + bar.get_width())
        for container in axes.containers
        for bar in container
    )
    ends = td["job_process_time"][1].gather(-1, actions[1]).cumsum(-1)
    assert [row for row, _ in bars] == list(range(6))
    np.testing.assert_allclose([end for _, end in bars], ends.numpy(), rtol=1e-5)
    assert f"weighted tardiness {-reward[1]:.3f}" in axes.get_title()
    assert len(env.render(td).axes[0].get_yticklabels()) == 6


# ---------------------------------------------------------------- instances


def test_distribution_of_the_generator():
    """Uniform due times up to half the number of jobs, weights and times up to 1; a dummy first."""
    generator = SMTWTPGenerator(num_job=10)
    td = generator(5000, rng=torch.Generator().manual_seed(0))
    for key, largest in zip(KEYS, (5.0, 1.0, 1.0), strict=True):
        assert td[key].shape == (5000, 11) and bool((td[key][:, 0] == 0).all())
        values = td[key][:, 1:].double() / largest
        assert 0 <= float(values.min()) < 1e-3 and 1 - 1e-3 < float(values.max()) <= 1
        assert float(values.mean()) == pytest.approx(0.5, abs=0.01)
        assert float(values.var()) == pytest.approx(1 / 12, abs=0.005)
    due, weight, process = (td[key][:, 1:].flatten() for key in KEYS)
    assert float(torch.corrcoef(torch.stack([due, weight, process])).triu(1).abs().max()) < 0.03
    assert float(process.min()) > 0


def test_ranges_and_seeds():
    generator = SMTWTPGenerator(
        num_job=4, min_time_span=2, max_time_span=3, min_job_weight=5, max_job_weight=6,
        min_process_time=8, max_process_time=9,
    )  # fmt: skip
    draws = [generator([2, 3], rng=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    for key, low in zip(KEYS, (2, 5, 8), strict=True):
        values = draws[0][key][..., 1:]
        assert values.shape == (2, 3, 4)
        assert bool(((values >= low) & (values <= low + 1)).all())
        assert torch.equal(draws[0][key], draws[1][key])
        assert not torch.equal(draws[0][key], draws[2][key])


def test_number_of_jobs():
    """`num_job` is short for the generator's argument, and may not contradict it."""
    for env in (SMTWTPEnv(num_job=4), get_env("smtwtp", num_job=4)):
        assert env.generate(2)["job_weight"].shape == (2, 5)
    params = {"max_job_weight": 3.0}
    env = SMTWTPEnv(generator_params=params, num_job=4)
    assert (env.generator.num_job, env.generator.max_job_weight) == (4, 3.0)
    assert params == {"max_job_weight": 3.0}
    generator = SMTWTPGenerator(num_job=4)
    assert SMTWTPEnv(generator, num_job=4).generator is generator
    assert SMTWTPEnv(generator_params={"num_job": 4}, num_job=4).generator.num_job == 4
    with pytest.raises(ConfigError, match=r"num_job = 5 in generator, too, got 4; give it once"):
        SMTWTPEnv(generator, num_job=5)
    with pytest.raises(ConfigError, match=r"num_job = 5 in generator_params, too, got 4"):
        SMTWTPEnv(generator_params={"num_job": 4}, num_job=5)
    with pytest.raises(ConfigError, match="integer >= 1, got 0"):
        SMTWTPEnv(num_job=0)


def test_message_names_the_job():
    env = SMTWTPEnv()
    instances = env.generate(3)
    instances["job_process_time"][1, 7] = 0.0
    with pytest.raises(InvalidInstanceError, match="job_process_time of job 7 is 0 in instance 1"):
        env.reset(instances)


# ---------------------------------------------------------------- files


def test_reading_a_file(tmp_path: Path):
    """Two instances of three jobs over several lines: times, weights, due dates."""
    file = tmp_path / "small.txt"
    file.write_text("  1 2 3\n 4 5 6 7\n 8 9\n\n 11 12 13 14 15 16 17 18 19\n")
    td = read_weighted_tardiness(file, num_job=3)
    assert td["job_process_time"].tolist() == [[0, 1, 2, 3], [0, 11, 12, 13]]
    assert td["job_weight"].tolist() == [[0, 4, 5, 6], [0, 14, 15, 16]]
    assert td["job_due_time"].tolist() == [[0, 7, 8, 9], [0, 17, 18, 19]]
    assert td["job_weight"].dtype == torch.float64
    # Order 1, 2, 3 ends at 1, 3, 6 and is in time; the second one ends at 11, 23, 36.
    reward = SMTWTPEnv().get_reward(SMTWTPEnv().reset(td), torch.tensor([[1, 2, 3]] * 2))
    assert reward.tolist() == [0.0, -(15.0 * 5 + 16 * 17)]


@pytest.mark.parametrize(
    ("text", "num_job", "message"),
    [
        ("1 2 3 4 5 6 7", 2, "a multiple of 6 numbers"),
        ("1 2 3", None, "give num_job"),
        ("1 2 x", 1, "line 1.*'x'"),
        ("1 2 3\n4 5.5 6", 2, "whole numbers"),
        ("1 0 3 4 5 6", 2, "positive processing times, got 0 in instance 1"),
        ("1 2 3 -4 5 6", 2, "positive weights"),
    ],
)
def test_damaged_files(tmp_path: Path, text, num_job, message):
    file = tmp_path / "damaged.txt"
    file.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        read_weighted_tardiness(file, num_job)


def test_bad_number_of_jobs(tmp_path: Path):
    file = tmp_path / "fine.txt"
    file.write_text("1 2 3")
    with pytest.raises(ConfigError, match="num_job"):
        read_weighted_tardiness(file, 0)
    with pytest.raises(FileNotFoundError):
        read_weighted_tardiness(tmp_path / "missing.txt")


@pytest.mark.parametrize(
    ("name", "best", "num_job"),
    [("wt40", "wtopt40", 40), ("wt50", "wtopt50", 50), ("wt100", "wtbest100b", 100)],
)
def test_files_of_the_or_library(shared_dir: Path, name, best, num_job):
    """All 125 instances are accepted, and no simple rule beats the best-known values."""
    folder = shared_dir / "data" / "smtwtp"
    if not folder.is_dir():
        pytest.skip("no instances of the OR-Library")
    env = SMTWTPEnv()
    instances = env.load_data(folder / f"{name}.txt")
    assert instances.batch_size == (125,)
    td = env.reset(instances)
    assert td["job_weight"].shape == (125, num_job + 1)
    values = read_best_tardiness(folder / f"{best}.txt")
    assert values.shape == (125,)
    _, costs = env.solve(instances, solver="dispatching", rule="atc")
    assert costs.dtype == torch.float64 and bool((costs >= values).all())
    assert bool(torch.equal(costs, costs.round()))
    late = values > 0
    # Apparent tardiness cost is known to be good, and it is.
    assert float(costs.sum() / values.sum()) < 1.05
    # In time is in time: where nothing has to be late, the rule of due dates finds it.
    _, by_date = env.solve(instances, solver="dispatching", rule="edd")
    assert bool((by_date[~late] == 0).all())
