"""Random search, genetic algorithm, particle swarm, nearest cell and greedy placement."""

from __future__ import annotations

import itertools

import pytest
import torch

from rl4co.core.errors import ConfigError, UnsupportedError
from rl4co.envs import CVRPEnv, DPPEnv, FFSPEnv, MDPPEnv, TSPEnv
from rl4co.solvers._evolution import Budget
from rl4co.solvers.formulations.dpp import PlacementEncoding

DECAP_SOLVERS = ("random_search", "genetic", "nearest_cell", "greedy")


@pytest.fixture(params=[DPPEnv, MDPPEnv])
def small(request):
    """A small board and eight instances."""
    env = request.param(generator_params={"grid_size": 5, "max_decaps": 3})
    return env, env.generator(8, rng=torch.Generator().manual_seed(0))


def count_rewards(env, monkeypatch):
    """Counts the placements that are scored, final checks included."""
    scored = []
    objective = env._objective

    def counting(state, actions):
        scored.append(actions.shape[:-1].numel())
        return objective(state, actions)

    monkeypatch.setattr(env, "_objective", counting)
    return scored


@pytest.mark.parametrize("solver", DECAP_SOLVERS)
def test_placements_are_valid_and_reproducible(small, solver):
    env, td = small
    actions, costs = env.solve(td, solver=solver)
    again, _ = env.solve(td, solver=solver)
    assert torch.equal(actions, again)
    torch.testing.assert_close(costs, -env.get_reward(env.reset(td), actions))


@pytest.mark.parametrize("solver", DECAP_SOLVERS)
def test_instances_with_their_own_numbers_of_decaps(solver):
    env = MDPPEnv(generator_params={"grid_size": 5, "min_decaps": 1})
    td = env.generator(12, rng=torch.Generator().manual_seed(0))
    actions, _ = env.solve(td, solver=solver, **({"shots": 30} if solver == "genetic" else {}))
    placed = torch.zeros(12, 25).scatter(-1, actions, 1.0).sum(-1)
    assert torch.equal(placed.long(), td["max_decaps"].squeeze(-1))


def test_all_come_close_to_the_optimum():
    """Two decaps on nine cells: all pairs can be tried; every method beats the mean pair."""
    env = DPPEnv(generator_params={"grid_size": 3, "max_decaps": 2, "num_keepout_max": 2})
    td = env.reset(env.generator(5, rng=torch.Generator().manual_seed(1)))
    best, mean = [], []
    for b in range(5):
        cells = td["action_mask"][b].nonzero().flatten().tolist()
        pairs = torch.tensor(list(itertools.combinations(cells, 2)))
        rewards = env.get_reward(td[b].expand(len(pairs)), pairs)
        best.append(rewards.max())
        mean.append(rewards.mean())
    best, mean = torch.stack(best), torch.stack(mean)
    rewards = {solver: -env.solve(td, solver=solver)[1] for solver in DECAP_SOLVERS}
    torch.testing.assert_close(rewards["random_search"], best)  # 100 shots at no more than 36
    for reward in rewards.values():
        assert bool((reward <= best + 1e-4).all())
        assert reward.mean() > mean.mean()


@pytest.mark.parametrize(
    ("solver", "options", "shots"),
    [
        ("random_search", {"shots": 50}, 50),
        ("genetic", {}, 100),  # 20 and five times 16: the elite is not scored again
        ("genetic", {"shots": 30}, 30),
        ("genetic", {"shots": 7}, 7),
    ],
)
def test_shots_are_counted(small, monkeypatch, solver, options, shots):
    env, td = small
    scored = count_rewards(env, monkeypatch)
    env.solve(td, solver=solver, **options)
    assert sum(scored) == 8 * (shots + 1)  # and one for the costs


def test_more_shots_are_never_worse(small):
    env, td = small
    few, many = (env.solve(td, solver="genetic", shots=shots)[1] for shots in (20, 200))
    assert bool((many <= few).all())
    assert many.mean() < few.mean()


def test_children_have_halves_of_both_parents():
    env = DPPEnv(generator_params={"grid_size": 4, "max_decaps": 4, "num_keepout_max": 1})
    encoding = PlacementEncoding(env, env.reset(env.generator(1)))
    free = encoding.free[0].nonzero().flatten()
    mother, father = free[:4].view(1, 1, 4), free[4:8].view(1, 1, 4)
    child = encoding.breed(mother, father, torch.Generator().manual_seed(0))
    assert child.flatten().tolist() == [*free[:2].tolist(), *free[6:8].tolist()]
    # The father's second half repeats the mother's first: both cells are replaced by free ones.
    crossed = torch.cat([father[..., :2], mother[..., :2]], -1)
    child = encoding.breed(mother, crossed, torch.Generator().manual_seed(0)).flatten().tolist()
    assert child[:2] == free[:2].tolist()
    assert len(set(child)) == 4
    assert set(child) <= set(free.tolist())


def test_nearest_cells():
    """Ports take turns."""
    env = MDPPEnv(generator_params={"grid_size": 4, "max_decaps": 2, "num_keepout_max": 1})
    td = env.generator(1)
    cells = torch.arange(16)
    td["probe"], td["action_mask"] = ((cells == 0) | (cells == 15))[None], (cells != 1)[None]
    assert env.solve(td, solver="nearest_cell")[0].tolist() == [[4, 11]]


def test_greedy_is_the_default(small):
    env, td = small
    assert env.default_solver().name == "greedy"
    first = env.solve(td)[0][:, 0]
    # The first decap is the best single one.
    single = type(env)(generator_params={"grid_size": 5, "max_decaps": 1})
    state = single.reset(td)
    rewards = torch.stack(
        [single.get_reward(state, torch.full((8, 1), cell), False) for cell in range(25)], -1
    )
    best = rewards.masked_fill(~state["action_mask"], -torch.inf).argmax(-1)
    assert torch.equal(first, best)


def test_random_search_solves_anything():
    env = CVRPEnv(generator_params={"num_loc": 6})
    td = env.generator(4, rng=torch.Generator().manual_seed(0))
    costs = [env.solve(td, solver="random_search", shots=shots)[1] for shots in (20, 100)]
    assert bool((costs[1] <= costs[0]).all())


# ---------------------------------------------------------------- flow shop


@pytest.mark.parametrize("solver", ["genetic", "particle_swarm"])
def test_flow_shop(solver):
    """Both begin with the rule "shortest job first" and improve on it."""
    env = FFSPEnv(generator_params={"num_job": 8, "num_machine": 3, "num_stage": 2})
    td = env.generator(6, rng=torch.Generator().manual_seed(0))
    _, rule = env.solve(td, solver="dispatching", rule="spt")
    actions, costs = env.solve(td, solver=solver, shots=1500)
    assert bool((costs <= rule).all())
    assert costs.mean() < 0.97 * rule.mean()
    torch.testing.assert_close(-env.get_reward(env.reset(td), actions), costs)
    assert env.default_solver().name not in ("genetic", "particle_swarm")


# ---------------------------------------------------------------- limits and rejections


def test_time_is_kept():
    budget = Budget(100, seconds=-1.0)
    assert budget.take(10) == 0
    budget = Budget(15, seconds=100.0)
    assert [budget.take(10), budget.take(10), budget.take(10)] == [10, 5, 0]


def test_what_cannot_be_solved_is_rejected(small):
    env, td = small
    with pytest.raises(ConfigError, match="elite < population"):
        env.solve(td, solver="genetic", elite=20)
    with pytest.raises(ConfigError, match="shots"):
        env.solve(td, solver="genetic", shots=0)
    with pytest.raises(UnsupportedError, match="numbers for a swarm, got labels"):
        env.solve(td, solver="particle_swarm")
    tsp = TSPEnv()
    with pytest.raises(UnsupportedError, match="dpp"):
        tsp.solve(tsp.generator(2), solver="greedy")
