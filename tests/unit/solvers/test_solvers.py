"""Solvers: optimal tours against brute force, costs against the environment, worker processes."""

from __future__ import annotations

import importlib.util
import itertools
import os

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    InvalidInstanceError,
    RL4COError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import FORMULATIONS, SOLVERS
from rl4co.envs import get_env
from rl4co.solvers._worker_pool import map_instances
from rl4co.solvers.formulations import Formulation
from rl4co.solvers.lkh import RESOLUTION, integer_distances

#: Solvers that use all the time they are given, with settings that stop them.
QUICK: dict[str, dict[str, int]] = {
    "pyvrp": {"max_iterations": 50},
    "ortools": {"max_solutions": 20},
    "ils": {"max_iterations": 50},
}
#: Solvers that need further methods of a formulation.
WITH_METHODS = ("genetic", "greedy", "particle_swarm")
#: A solver that rejects the instances of a problem of its kind.
BEYOND = ("lkh", "cvrp")
#: Package that a solver needs.
PACKAGES = {"lkh": "elkai", "pyvrp": "pyvrp", "ortools": "ortools"}

needs_elkai = pytest.mark.skipif(importlib.util.find_spec("elkai") is None, reason="no elkai")


def brute_force(matrix: torch.Tensor) -> float:
    """Length of the shortest tour of one instance, by trying all."""
    size = len(matrix)
    tours = ([0, *rest, 0] for rest in itertools.permutations(range(1, size)))
    return min(sum(float(matrix[i, j]) for i, j in itertools.pairwise(tour)) for tour in tours)


def random_matrices(batch: int, size: int, seed: int = 0) -> torch.Tensor:
    matrix = torch.rand(batch, size, size, generator=torch.Generator().manual_seed(seed))
    return matrix * ~torch.eye(size, dtype=torch.bool)


def test_every_module_registers_its_own_name():
    """Names come from the files; formulations, which stand among them, are none."""
    for name in SOLVERS.names():
        solver = SOLVERS[name]
        assert callable(solver)
        assert solver.reads is None or issubclass(solver.reads, Formulation)
    assert "formulations" not in SOLVERS


@pytest.mark.parametrize(("problem", "batch"), [("tsp", 4), ("cvrp", 1)])
@pytest.mark.parametrize("name", SOLVERS.names())
def test_costs_are_minus_the_reward(name, problem, batch):
    """Solutions are valid in the environment's encoding and cost what it says."""
    env = get_env(problem, generator_params={"num_loc": 8})
    reads = SOLVERS[name].reads
    rejected = reads is not None and not issubclass(FORMULATIONS[problem], reads)
    if rejected or name in WITH_METHODS or (name, problem) == BEYOND:
        with pytest.raises(UnsupportedError, match=f"(?i){name}.*{problem}"):
            env.solve(env.generate(batch), solver=name)
        return
    if name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"no {PACKAGES[name]}")
    settings = QUICK.get(name, {})
    instances = env.generator(batch, rng=torch.Generator().manual_seed(0))
    actions, costs = env.solve(instances, solver=name, **settings)
    td = env.reset(instances)
    assert actions.dtype == torch.int64 and costs.shape == (batch,)
    assert torch.equal(env.get_reward(td, actions, check_solution=True), -costs)
    again = env.solve(td, solver=name, **settings)  # a state instead of an instance
    assert torch.equal(again[0], actions)


@needs_elkai
@pytest.mark.solvers
def test_lkh_is_optimal_on_small_instances():
    """The brute-force optimum of seven random points."""
    env = get_env("tsp", generator_params={"num_loc": 7})
    instances = env.generator(3, rng=torch.Generator().manual_seed(0))
    _, costs = env.solve(instances, solver="lkh")
    for locs, cost in zip(instances["locs"], costs, strict=True):
        assert float(cost) == pytest.approx(brute_force(torch.cdist(locs, locs)), abs=1e-5)


@needs_elkai
@pytest.mark.solvers
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("batch", [0.0, -3.0])
def test_lkh_on_cost_matrices(size, batch):
    """Asymmetric and even negative costs are solved to optimality, from one node on."""
    matrix = (random_matrices(2, size) + batch) * ~torch.eye(size, dtype=torch.bool)
    env = get_env("tsp")
    td = TensorDict({"cost_matrix": matrix}, batch_size=[2])
    actions, costs = env.solve(td, solver="lkh")
    assert actions.shape == (2, size) and (actions[:, 0] == 0).all()
    for row, cost in zip(matrix, costs, strict=True):
        optimum = brute_force(row) if size > 1 else 0.0
        assert float(cost) == pytest.approx(optimum, abs=1e-4)


@needs_elkai
@pytest.mark.solvers
def test_lkh_is_deterministic_and_independent_of_processes():
    """Processes, repetition and neighbours in the batch change nothing."""
    env = get_env("tsp", generator_params={"num_loc": 30})
    instances = env.generator(6, rng=torch.Generator().manual_seed(1))
    one = env.solve(instances, solver="lkh", num_procs=1)
    two = env.solve(instances, solver="lkh", num_procs=2)
    assert torch.equal(one[0], two[0])
    alone = env.solve(instances[4:5], solver="lkh")
    assert torch.equal(alone[0], one[0][4:5])


def test_integer_distances():
    """Distances 3, 4, 5 (and the largest of them) by hand: 5 becomes the resolution."""
    # A right triangle; 0 (the diagonal) is the smallest entry, so nothing is shifted.
    distances = torch.tensor([[[0, 3, 4], [3, 0, 5], [4, 5, 0]]]).double()
    expected = distances[0].long() * (RESOLUTION // 5)
    assert torch.equal(integer_distances(distances)[0], expected)
    assert (integer_distances(torch.zeros(1, 5, 5).double()) == 0).all()
    infinite = torch.ones(1, 3, 3).double().diagonal_scatter(
        torch.full((1, 3), torch.inf).double(), 0, -2, -1
    )  # fmt: skip
    assert (integer_distances(infinite)[0].diagonal() == 0).all()


@needs_elkai
@pytest.mark.solvers
def test_coincident_cities():
    """All cities in one place: any tour is optimal and costs nothing."""
    env = get_env("tsp")
    _, costs = env.solve(TensorDict({"locs": torch.full((1, 6, 2), 0.3)}, batch_size=[1]))
    assert float(costs) == 0.0


def test_nearest_neighbor_by_hand():
    """On the line 0, 1, 3, 7, 4 the tour from the first city visits 0, 1, 3, 4, 7: length 14."""
    locs = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [7.0, 0.0], [4.0, 0.0]]])
    env = get_env("tsp")
    actions, costs = env.solve(
        TensorDict({"locs": locs}, batch_size=[1]), solver="nearest_neighbor"
    )
    assert actions.tolist() == [[0, 1, 2, 4, 3]]
    assert costs.tolist() == [14.0]


def test_nearest_neighbor_fills_the_vehicle_first():
    """The depot is near, but a vehicle goes on while a customer fits: 0-1-2-0-3-0."""
    # Depot at 0, customers at 1, 5 and 6 on a line; two of them fill the vehicle.
    td = TensorDict(
        {
            "locs": torch.tensor([[[1.0, 0.0], [5.0, 0.0], [6.0, 0.0]]]),
            "depot": torch.zeros(1, 2),
            "demand": torch.full((1, 3), 0.5),
            "capacity": torch.full((1, 1), 10.0),
        },
        batch_size=[1],
    )
    actions, costs = get_env("cvrp").solve(td, solver="nearest_neighbor")
    assert actions[0].tolist()[:4] == [1, 2, 0, 3]
    assert costs.tolist() == [2 * 5.0 + 2 * 6.0]


def test_random_solutions_are_reproducible():
    """A seed fixes them without touching the global state; None follows it."""
    env = get_env("tsp", generator_params={"num_loc": 12})
    instances = env.generate(5)
    state = torch.get_rng_state()
    first = env.solve(instances, solver="random")[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(env.solve(instances, solver="random")[0], first)
    assert not torch.equal(env.solve(instances, solver="random", seed=1)[0], first)
    torch.manual_seed(3)
    free = env.solve(instances, solver="random", seed=None)[0]
    assert not torch.equal(env.solve(instances, solver="random", seed=None)[0], free)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"solver": "lhk"}, UnknownNameError),
        ({"max_runtime": 0.0}, ConfigError),
        ({"num_procs": 0}, ConfigError),
        ({"solver": "lkh", "runs": 0}, ConfigError),
    ],
)
def test_bad_arguments(arguments, error):
    """Wrong settings are rejected before anything is solved."""
    if arguments.get("runs") is not None and importlib.util.find_spec("elkai") is None:
        pytest.skip("no elkai")
    env = get_env("tsp", generator_params={"num_loc": 5})
    with pytest.raises(error):
        env.solve(env.generate(1), **{"solver": "nearest_neighbor", **arguments})


def test_bad_instances_are_rejected():
    """A single instance without batch axis, a half-finished one, and NaN for a coordinate."""
    env = get_env("tsp", generator_params={"num_loc": 5})
    with pytest.raises(ConfigError, match="one batch axis"):
        env.solve(env.generate([]), solver="random")
    state = env.reset(env.generate(2))
    later = env.step(state.set("action", state["current_node"]))["next"]
    with pytest.raises(ConfigError, match="later state"):
        env.solve(later, solver="random")
    broken = env.generate(2)
    broken["locs"][1, 2, 0] = torch.nan
    with pytest.raises(InvalidInstanceError, match="instances 1"):
        env.solve(broken, solver="random")


# ---------------------------------------------------------------- worker processes


def test_workers_keep_the_order():
    """Results come back in the order of the jobs, whoever finished first."""
    jobs = [(2, power) for power in range(20)]
    assert map_instances("operator:pow", jobs, num_procs=3) == [2**p for p in range(20)]
    assert map_instances("operator:pow", []) == []


def test_workers_run_elsewhere():
    """A job runs in another process."""
    (pid,) = set(map_instances("os:getpid", [(), ()], num_procs=1))
    assert pid != os.getpid()


def test_printing_does_not_disturb_the_results(capfd: pytest.CaptureFixture[str]):
    """What a solver prints goes to stderr."""
    assert map_instances("os:system", [("echo hello",)]) == [0]
    captured = capfd.readouterr()
    assert captured.out == "" and "hello" in captured.err


def test_errors_of_a_job_are_reported():
    """The traceback of the worker is in the message."""
    with pytest.raises(RL4COError, match="ZeroDivisionError"):
        map_instances("operator:truediv", [(1, 1), (1, 0), (1, 2)], num_procs=2)


def test_a_crash_does_not_take_the_caller_along():
    """A worker that dies is an error with its exit code."""
    with pytest.raises(RL4COError, match="code 3"):
        map_instances("os:_exit", [(3,)])


def test_progress_bar_goes_to_stderr(capfd: pytest.CaptureFixture[str]):
    """It is shown on request and leaves stdout alone."""
    map_instances("operator:pow", [(2, 2)], description="Working", progress=True)
    captured = capfd.readouterr()
    assert captured.out == "" and "Working" in captured.err
