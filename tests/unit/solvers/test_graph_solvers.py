"""Classical solvers of graph problems against brute force and published optima."""

from __future__ import annotations

import importlib.util
import itertools
import time

from pathlib import Path

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.envs import FLPEnv, MCPEnv, TSPEnv
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers.formulations import flp

PACKAGES = {"highs": "highspy", "scip": "pyscipopt"}
NUMBERS = (1, 3, 8)  # of 8 candidates, mixed in one batch


def make(name: str) -> tuple[RL4COEnvBase, TensorDict]:
    """Three small instances that differ in how many are chosen."""
    rng = torch.Generator().manual_seed(3)
    if name == "flp":
        env = FLPEnv(generator_params={"num_loc": 8})
        return env, env.generator(3, rng=rng).set("to_choose", torch.tensor(NUMBERS))
    sizes = {"num_items": 15, "num_sets": 8, "min_size": 1, "max_size": 4}
    env = MCPEnv(generator_params=sizes)
    wanted = torch.tensor(NUMBERS).float().unsqueeze(-1)
    return env, env.generator(3, rng=rng).set("n_sets_to_choose", wanted)


def brute_force(env: RL4COEnvBase, instances: TensorDict) -> list[float]:
    """Least costs, over all subsets."""
    best = []
    for row, count in enumerate(NUMBERS):
        subsets = torch.tensor(list(itertools.combinations(range(8), count)))
        td = env.reset(instances[row].expand(len(subsets)))
        best.append(float(-env.get_reward(td, subsets).max()))
    return best


def require(solver: str) -> None:
    if solver in PACKAGES and importlib.util.find_spec(PACKAGES[solver]) is None:
        pytest.skip(f"no {PACKAGES[solver]}")


@pytest.mark.solvers
@pytest.mark.parametrize("solver", PACKAGES)
@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_optima_are_found_and_proven(name: str, solver: str):
    require(solver)
    env, instances = make(name)
    found = env.solve(instances, solver=solver, max_runtime=30.0)
    assert found.costs.tolist() == pytest.approx(brute_force(env, instances), rel=1e-5)
    assert found.optimal.all()
    assert found.bounds.tolist() == pytest.approx(found.costs.tolist(), rel=1e-5)


@pytest.mark.solvers
@pytest.mark.parametrize("solver", PACKAGES)
@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_solvers_improve_what_they_begin_with(name: str, solver: str):
    """From a poor solution, in the program that the worker gets, the optimum is reached as well."""
    require(solver)
    env, instances = make(name)
    poor = torch.arange(8).expand(3, -1).contiguous()
    found = env.solve(instances, solver=solver, initial=poor, max_runtime=30.0)
    assert found.costs.tolist() == pytest.approx(brute_force(env, instances), rel=1e-5)


@pytest.mark.solvers
def test_few_nearest_locations_are_exact(monkeypatch):
    """With a single one per customer the first program is too small; larger ones follow."""
    require("highs")
    monkeypatch.setattr(flp, "NUM_NEAREST", 1)
    attempts: list[int] = []
    build = flp.FLPFormulation.build

    def noting(self, instance, first, attempt):
        attempts.append(attempt)
        return build(self, instance, first, attempt)

    monkeypatch.setattr(flp.FLPFormulation, "build", noting)
    rng = torch.Generator().manual_seed(0)
    costs = torch.rand(20, 8, 8, generator=rng) ** 3  # many near locations, some far
    td = TensorDict({"cost_matrix": costs, "to_choose": torch.full((20,), 3)}, batch_size=[20])
    env = FLPEnv()
    # Local optima that serve everybody from near by, so programs are small.
    first = env.solve(td, solver="local_search").actions
    found = env.solve(td, solver="highs", initial=first)
    subsets = torch.tensor(list(itertools.combinations(range(8), 3)))
    best = costs[:, subsets].amin(2).sum(-1).amin(-1)  # [20]
    assert found.costs.tolist() == pytest.approx(best.tolist(), rel=1e-5)
    assert found.optimal.all()
    assert max(attempts) >= 1


def test_the_smaller_program_is_a_bound():
    """Its cost is never above that of the whole problem, for any solution."""
    env, instances = make("flp")
    td = env.reset(instances)
    formulation = flp.FLPFormulation()
    instance = {key: value[1].numpy() for key, value in td.items()}
    costs = instance["orig_distances"].astype(np.float64)
    for depth in (1, 3):
        price = flp._cost_beyond(costs, depth)
        nearest = np.argsort(costs, axis=0, kind="stable")[:depth]
        for subset in itertools.combinations(range(8), 3):
            open_here = np.isin(nearest, subset)  # [K, N]
            near = np.where(open_here, np.take_along_axis(costs, nearest, 0), np.inf).min(axis=0)
            relaxed = np.minimum(near, price).sum()
            assert relaxed <= costs[list(subset)].min(axis=0).sum() + 1e-12
    whole = formulation.build(instance, [0, 1, 2], attempt=10)
    assert len(whole.cost) == 8 + 64  # all locations, nothing beyond
    assert formulation.is_complete(instance, whole, np.zeros(72))


@pytest.mark.solvers
def test_time_limit_leaves_a_solution_and_a_bound():
    require("highs")
    env = MCPEnv()
    td = env.generator(1, rng=torch.Generator().manual_seed(1))
    started = time.perf_counter()
    found = env.solve(td, solver="highs", max_runtime=1.0)
    assert time.perf_counter() - started < 30  # the process, and compiling the local search
    assert not found.optimal.any()
    assert (found.bounds < found.costs).all()


@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_local_search_begins_greedily(name: str):
    """Never worse than greedy; more starts are never worse than fewer."""
    env, instances = make(name)
    costs = [
        env.solve(instances, solver=solver, **options).costs
        for solver, options in (
            ("greedy", {}),
            ("local_search", {}),
            ("local_search", {"starts": 5}),
        )
    ]
    best = torch.tensor(brute_force(env, instances))
    assert (costs[1] <= costs[0] + 1e-6).all()
    assert (costs[2] <= costs[1] + 1e-6).all()
    assert (costs[2] >= best - 1e-4).all()
    again = env.solve(instances, solver="local_search", starts=5)
    assert torch.equal(again.costs, costs[2])


def test_local_search_from_several_starts_of_a_tour():
    """Problems without gains begin with random solutions."""
    env = TSPEnv(generator_params={"num_loc": 12})
    td = env.generator(3, rng=torch.Generator().manual_seed(0))
    one = env.solve(td, solver="local_search").costs
    several = env.solve(td, solver="local_search", starts=6).costs
    assert (several <= one + 1e-6).all()
    with pytest.raises(ConfigError, match="starts of at least 1"):
        env.solve(td, solver="local_search", starts=0)


@pytest.mark.parametrize("name", ["flp", "mcp"])
def test_random_gives_best_and_mean(name: str):
    """The best of the samples, whose first is the single one; the mean is worse."""
    env, instances = make(name)
    single = env.solve(instances, solver="random")
    assert single.mean_costs is None
    several = env.solve(instances, solver="random", samples=16)
    assert (several.costs <= single.costs).all()
    assert (several.mean_costs[:2] > several.costs[:2]).all()
    # All 8 of 8: there is but one solution.
    torch.testing.assert_close(several.mean_costs[2], several.costs[2], atol=1e-4, rtol=1e-5)
    with pytest.raises(ConfigError, match="samples of at least 1"):
        env.solve(instances, solver="random", samples=0)


@pytest.mark.solvers
@pytest.mark.parametrize("size", ["flp100_k10", "flp200_k20"])
def test_published_optima(shared_dir: Path, size: str):
    """Some of the instances whose optima are known."""
    require("highs")
    file = shared_dir / "data" / "graph" / f"{size}.npz"
    if not file.is_file():
        pytest.skip("no graph problems in the shared folder")
    data = np.load(file)
    keys = ("locs", "to_choose")
    td = TensorDict({key: torch.from_numpy(data[key][:3]) for key in keys}, batch_size=[3])
    found = FLPEnv().solve(td, max_runtime=60.0)
    assert found.optimal.all()
    assert found.costs.tolist() == pytest.approx(data["opt"][:3].tolist(), rel=1e-6)
    greedy = FLPEnv().solve(td, solver="greedy").costs
    assert greedy.tolist() == pytest.approx(data["greedy"][:3].tolist(), rel=1e-3)
