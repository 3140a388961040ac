"""Solvers that begin with a solution: routes come from actions, and results are never worse."""

from __future__ import annotations

import importlib

import pytest
import torch

from rl4co.core.errors import InvalidSolutionError, UnsupportedError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.envs import get_env
from rl4co.envs.testing import constructive_names, make_sized_env
from rl4co.solvers._integers import to_integers
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.solvers.formulations import RoutingFormulation, formulation_of, instances_of

ROUTING = [name for name in constructive_names() if ".routing." in ENVS.location(name)]
#: Where the default objective is none of PyVRP's, another is taken.
SUMS = {"mtsp": {"cost_type": "sum"}, "mdcpdp": {"reward_mode": "minsum"}}
#: Deliveries that are split are no routes of a formulation.
WHOLE = [name for name in ROUTING if name != "sdvrp"]
BATCH = 3


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run here: starting processes takes longer than solving tiny instances."""

    def call_all(target, jobs, *_, **__):
        module, function = target.split(":")
        return [getattr(importlib.import_module(module), function)(*job) for job in jobs]

    monkeypatch.setattr("rl4co.solvers._routing.map_instances", call_all)


def make(problem: str, size: int = 10):
    """Environment, instances and random solutions of them."""
    env = make_sized_env(problem, size, **SUMS.get(problem, {}))
    instances = env.generator(BATCH, rng=torch.Generator().manual_seed(3))
    return env, instances, *env.solve(instances, solver="random", seed=1)


@pytest.mark.parametrize("problem", WHOLE)
def test_routes_of_actions_cost_the_same(problem: str):
    """The formulation counts for decoded routes what the environment counts for the actions."""
    env, instances, actions, costs = make(problem)
    formulation = formulation_of(env, RoutingFormulation)
    for row, instance in enumerate(instances_of(env.reset(instances))):
        routing = formulation.formulate(env, instance)
        routes = formulation.decode(env, routing, actions[row].tolist())
        assert routing.cost(routes) == pytest.approx(float(costs[row]), rel=1e-5, abs=1e-5)
        assert all(routing.feasible(route) for route in routes)
        again, _ = formulation.encode(env, routing, routes)
        assert formulation.decode(env, routing, again) == routes


@pytest.mark.solvers
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("problem", WHOLE)
def test_pyvrp_goes_on_from_a_solution(problem: str):
    """From random solutions it gets better; from good ones it never gets worse."""
    pytest.importorskip("pyvrp")
    env, instances, actions, costs = make(problem)
    good, improved = env.solve(
        instances, solver="pyvrp", initial=actions, max_iterations=150, seed=0
    )
    assert (improved <= costs + 1e-5).all() and float(improved.sum()) < float(costs.sum())
    for seed in (1, 2):
        _, kept = env.solve(instances, solver="pyvrp", initial=good, max_iterations=1, seed=seed)
        assert (kept <= improved + 1e-5).all()


@pytest.mark.solvers
def test_pyvrp_really_begins_there():
    """After one iteration, nothing but the start can explain a solution this good."""
    pytest.importorskip("pyvrp")
    from rl4co.solvers._pyvrp_worker import solve_problem

    env = get_env("cvrp", generator_params={"num_loc": 60})
    td = env.reset(env.generator(1, rng=torch.Generator().manual_seed(0)))
    best, _ = env.solve(td, solver="pyvrp", max_runtime=10.0, max_iterations=400)
    formulation = formulation_of(env, RoutingFormulation)
    (instance,) = instances_of(td)
    routing = to_integers(formulation.formulate(env, instance))
    start = formulation.decode(env, routing, best[0].tolist())
    warm, cold = (solve_problem(routing, 5.0, 1, 0, routes) for routes in (start, None))
    assert warm is not None and warm[1] <= routing.cost(start) + routing.unit
    assert cold is None or cold[1] > warm[1]


@pytest.mark.solvers
@pytest.mark.parametrize("problem", ["tsp", "atsp", "shpp"])
@pytest.mark.parametrize("size", [2, 4, 30])
def test_lkh_goes_on_from_a_solution(problem: str, size: int):
    """Tours, asymmetric ones and paths."""
    pytest.importorskip("elkai")
    env, instances, actions, costs = make(problem, size)
    good, improved = env.solve(instances, solver="lkh", initial=actions, runs=2)
    assert (improved <= costs).all()
    if size == 30:
        assert float(improved.sum()) < 0.7 * float(costs.sum())
    _, kept = env.solve(instances, solver="lkh", initial=good, runs=1, seed=5)
    assert (kept <= improved).all()


@pytest.mark.solvers
def test_one_worker_pool_starts_with_and_without_tours():
    """LKH remembers the file of a tour for as long as its process lives; workers are kept apart."""
    pytest.importorskip("elkai")
    env, instances, actions, _ = make("tsp", 8)
    with WorkerPool() as pool, pool.running():
        first = env.solve(instances, solver="lkh", initial=actions)[1]
        assert torch.allclose(env.solve(instances, solver="lkh")[1], first)
        assert torch.allclose(env.solve(instances, solver="lkh", initial=actions)[1], first)


def test_a_start_better_than_what_lkh_finds_is_kept(monkeypatch: pytest.MonkeyPatch):
    """Each instance by itself, whatever LKH makes of its rounded lengths."""
    pytest.importorskip("elkai")
    env, instances, actions, costs = make("tsp", 8)
    better, lengths = env.solve(instances, solver="local_search", initial=actions)
    starts = torch.where(torch.tensor([[True], [False], [True]]), better, actions)  # [B, N]
    tour, start = actions[0].tolist(), int(actions[0].argmin())
    tour = tour[start:] + tour[:start]  # LKH's begin at node 0
    monkeypatch.setattr("rl4co.solvers.lkh.map_instances", lambda *_, **__: [tour] * BATCH)
    found, cost = env.solve(instances, solver="lkh", initial=starts)
    assert torch.equal(found[[0, 2]], better[[0, 2]]) and torch.equal(cost[[0, 2]], lengths[[0, 2]])
    assert cost[1] <= costs[1]


@pytest.mark.parametrize("problem", ["tsp", "atsp", "cvrp", "shpp"])
def test_local_search_is_a_solver(problem: str):
    """It improves what it is given, or the nearest neighbour's solutions."""
    env, instances, actions, costs = make(problem, 20)
    _, improved = env.solve(instances, solver="local_search", initial=actions)
    assert (improved < costs).all()
    _, alone = env.solve(instances, solver="local_search")
    assert (alone <= env.solve(instances, solver="nearest_neighbor")[1] + 1e-5).all()


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("tsp", "lkh"),
        ("atsp", "lkh"),
        ("cvrp", "pyvrp"),
        ("cvrptw", "pyvrp"),
        ("op", "pyvrp"),
        ("jssp", "cpsat"),
    ],
)
def test_default_with_a_start(problem: str, expected: str):
    """The best solver that can begin with a solution."""
    assert make_sized_env(problem, 6).default_solver(warm_start=True) is SOLVERS[expected]


def test_solvers_without_a_start_say_so():
    """And name one that has it."""
    env, instances, actions, _ = make("cvrp")
    with pytest.raises(UnsupportedError, match=r"'insertion'.* use 'pyvrp'"):
        env.solve(instances, solver="insertion", initial=actions)
    env, instances, actions, _ = make("mtsp")
    with pytest.raises(UnsupportedError, match="begin with a given solution for mtsp"):
        env.solve(instances, initial=actions)


def test_bad_starts_are_rejected():
    """A start that breaks a constraint, or that the formulation does not know."""
    pytest.importorskip("pyvrp")
    env, instances, actions, _ = make("cvrp")
    with pytest.raises(InvalidSolutionError):
        env.solve(instances, solver="pyvrp", initial=torch.ones_like(actions))
    env = get_env("sdvrp", generator_params={"num_loc": 3, "capacity": 10})
    td = env.generator(1, rng=torch.Generator().manual_seed(0))
    td["demand"] = torch.tensor([[0.6, 0.6, 0.6]])
    split = torch.tensor([[1, 2, 0, 2, 3, 0, 3]])
    env.check_solution_validity(env.reset(td), split)
    with pytest.raises(UnsupportedError, match="split deliveries"):
        env.solve(td, solver="pyvrp", initial=split)
