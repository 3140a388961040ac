"""Simulation-guided beam search against greedy decoding and the enumeration of all solutions."""

from __future__ import annotations

import itertools

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.decoding.rollout import DecodingTask, expand_solutions
from rl4co.decoding.searches.sgbs import SimulationGuidedBeamSearch
from rl4co.envs import CVRPEnv, JSSPEnv, TSPEnv
from rl4co.models import L2DPolicy

PROBLEMS = ["tsp", "cvrp"]
pytestmark = pytest.mark.usefixtures("_no_grad")


@pytest.fixture
def _no_grad():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("name", PROBLEMS)
def test_one_beam_with_one_action_is_greedy(name, make_env, make_policy):
    env, policy = make_env(name, 9), make_policy(name)
    td = env.reset(batch_size=6)
    greedy = policy(td, env, decode_type="greedy")
    out = policy(td, env, decode_type="sgbs", beam_width=1, expansion=1)
    assert torch.equal(out["actions"], greedy["actions"])
    torch.testing.assert_close(out["reward"], greedy["reward"])
    torch.testing.assert_close(out["log_likelihood"], greedy["log_likelihood"])


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(("width", "expansion"), [(1, 3), (3, 1), (3, 3), (4, 20)])
def test_valid_and_never_worse_than_greedy(name, width, expansion, make_env, make_policy):
    """Solutions pass the environment's checks and have the likelihood of an evaluation."""
    env, policy = make_env(name, 8), make_policy(name)
    td = env.reset(batch_size=8)
    greedy = policy(td, env, decode_type="greedy")["reward"]
    out = policy(td, env, decode_type="sgbs", beam_width=width, expansion=expansion)
    assert out["reward"].shape == (8,)
    assert bool((out["reward"] >= greedy - 1e-6).all())
    if expansion > 1:
        assert float(out["reward"].mean()) > float(greedy.mean())
    env.check_solution_validity(td, out["actions"])
    again = policy(td, env, actions=out["actions"])
    torch.testing.assert_close(out["reward"], again["reward"])
    torch.testing.assert_close(out["log_likelihood"], again["log_likelihood"], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", PROBLEMS)
def test_instances_do_not_depend_on_their_batch(name, make_env, make_policy):
    """CVRP solutions end at different steps, and wait for others in a batch only."""
    env, policy = make_env(name, 8), make_policy(name)
    td = env.reset(batch_size=5)
    settings = {"decode_type": "sgbs", "beam_width": 3, "expansion": 3}
    together = policy(td, env, **settings)
    for b in range(5):
        alone = policy(td[b : b + 1], env, **settings)
        torch.testing.assert_close(alone["reward"][0], together["reward"][b])
        length = alone["actions"].shape[-1]
        assert torch.equal(alone["actions"][0], together["actions"][b, :length])


def test_routes_of_different_lengths(make_policy):
    """One vehicle for all customers beside one for each, in one batch."""
    env, rng = CVRPEnv(), torch.Generator().manual_seed(3)
    demand = torch.tensor([[0.1] * 5, [0.9] * 5])
    instance = {
        "locs": torch.rand(2, 5, 2, generator=rng),
        "depot": torch.rand(2, 2, generator=rng),
    }
    td = env.reset(TensorDict({**instance, "demand": demand}, batch_size=2))
    out = make_policy("cvrp")(td, env, decode_type="sgbs", beam_width=3, expansion=4)
    env.check_solution_validity(td, out["actions"])
    assert out["actions"].shape[-1] >= 9  # five routes of one customer


def test_wide_search_is_exhaustive(table_logits, rng):
    """With all children and 24 beams for the 4! tours, the best tour is found."""
    env = TSPEnv()
    td = env.reset(TensorDict({"locs": torch.rand(3, 5, 2, generator=rng)}, batch_size=3))
    table = torch.randn(3, 5, 5, generator=rng)
    task = DecodingTask(env, expand_solutions(dict(td.items()), 1), table_logits(table))
    out = SimulationGuidedBeamSearch(beam_width=120, expansion=5).run(task)
    reward = env.get_reward(td, out.actions[:, 0])
    tours = torch.tensor(list(itertools.permutations(range(5))))  # [120, 5]
    for b in range(3):
        best = env.get_reward(td[b : b + 1].expand(120), tours).max()
        torch.testing.assert_close(reward[b], best)


def test_job_shops():
    """Rewards that belong to final states, and instances with operations that wait."""
    env = JSSPEnv(generator_params={"num_jobs": 3, "num_machines": 2}, seed=1)
    torch.manual_seed(0)
    policy = L2DPolicy(env_name="jssp", embed_dim=16, num_encoder_layers=1).eval()
    td = env.reset(batch_size=4)
    greedy = policy(td, env, decode_type="greedy")
    out = policy(td, env, decode_type="sgbs", beam_width=2, expansion=2)
    assert bool((out["reward"] >= greedy["reward"] - 1e-6).all())
    again = policy(td, env, actions=out["actions"])
    torch.testing.assert_close(out["reward"], again["reward"])


def test_partially_built_solutions(make_env, make_policy):
    """The search continues from a state in which steps were taken."""
    env, policy = make_env("cvrp", 6), make_policy("cvrp")
    start = env.reset(batch_size=3)
    td = env.step(start.copy().update({"action": torch.tensor([1, 2, 3])}))["next"]
    out = policy(td, env, decode_type="sgbs", beam_width=2, expansion=2, calc_reward=False)
    actions = torch.cat([torch.tensor([[1], [2], [3]]), out["actions"]], -1)
    env.check_solution_validity(start, actions)


def test_bad_settings_raise():
    for settings in ({"beam_width": 0}, {"expansion": 0}, {"num_samples": 2}):
        with pytest.raises(ConfigError):
            SimulationGuidedBeamSearch(**settings)
