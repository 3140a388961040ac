"""Routing solvers: limits met exactly, what cannot be solved, defaults, seeds and processes."""

from __future__ import annotations

import importlib
import importlib.util
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    MissingDependencyError,
    NoSolutionError,
    RL4COError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.envs import get_env
from rl4co.envs.routing.cvrp.env import CVRPEnv
from rl4co.envs.testing import constructive_names, make_sized_env
from rl4co.solvers._integers import RESOLUTION, to_integers
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers.formulations import RoutingFormulation, formulation_of, instances_of

QUICK = {"pyvrp": {"max_iterations": 100}, "ortools": {"max_solutions": 50}, "insertion": {}}
ROUTING = [name for name in constructive_names() if ".routing." in ENVS.location(name)]


def in_process(target, jobs, *_, **__):
    module, function = target.split(":")
    return [getattr(importlib.import_module(module), function)(*job) for job in jobs]


@pytest.fixture(params=["pyvrp", "ortools"])
def solver(request, monkeypatch):
    """A solver whose workers run here, which is quicker than starting processes."""
    pytest.importorskip(request.param)
    monkeypatch.setattr("rl4co.solvers._routing.map_instances", in_process)
    return request.param


def solve(env, td, solver):
    return env.solve(td, solver=solver, max_runtime=5.0, **QUICK[solver])


def line(*places: float) -> torch.Tensor:
    """Points on a line, `[1, n, 2]`."""
    return torch.tensor([[[x, 0.0] for x in places]])


# ---------------------------------------------------------------- limits that are met exactly


def cvrp(locs: torch.Tensor, demand: list[float], **more: torch.Tensor) -> TensorDict:
    instance = {
        "locs": locs,
        "depot": torch.zeros(1, 2),
        "demand": torch.tensor([demand]),
        "capacity": torch.full((1, 1), 10.0),
        **more,
    }
    return TensorDict(instance, batch_size=[1])


@pytest.mark.parametrize(
    "demand",
    [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.123456, 0.5, 0.376544]],
    ids=["tenths", "more tenths", "thirds", "fractions"],
)
def test_a_vehicle_can_be_filled_exactly(solver, demand):
    """Three customers at 1, 2, 3 on a line fill one vehicle: a single route of length 6."""
    # Thirds and fractions are no whole numbers of tenths, so they are rounded up.
    _, costs = solve(get_env("cvrp"), cvrp(line(1.0, 2.0, 3.0), demand), solver)
    assert costs.tolist() == pytest.approx([6.0])


def test_a_vehicle_cannot_be_overfilled(solver):
    """One tenth too much takes a second vehicle: 2 · 3 and, the nearest alone, 2 · 1."""
    td = cvrp(line(1.0, 2.0, 3.0), [0.2, 0.2, 0.7])
    _, costs = solve(get_env("cvrp"), td, solver)
    assert costs.tolist() == pytest.approx([8.0])


def test_a_hair_too_much_is_too_much(solver):
    """Fractions that exceed the vehicle by more than its tolerance are told apart."""
    td = cvrp(line(1.0, 2.0, 3.0), [0.123456, 0.5, 0.3766])
    _, costs = solve(get_env("cvrp"), td, solver)
    assert costs.tolist() == pytest.approx([8.0])


@pytest.mark.parametrize(("late", "cost"), [(0.0, 12.0), (-0.01, 16.0)])
def test_a_time_window_can_be_met_exactly(solver, late, cost):
    """A 3-4-5 triangle: service at 3 takes 2, then 4 to the corner, at 9, when it closes."""
    # Earlier, the corner must be served first (at 5), when 3 is reached at 10, too late as well.
    windows = torch.tensor([[[0.0, 20.0], [0.0, 3.0], [0.0, 9.0 + late]]])
    td = cvrp(
        torch.tensor([[[3.0, 0.0], [3.0, 4.0]]]),
        [0.1, 0.1],
        durations=torch.tensor([[0.0, 2.0, 1.0]]),
        time_windows=windows,
    )
    _, costs = solve(get_env("cvrptw"), td, solver)
    assert costs.tolist() == pytest.approx([cost])


def test_a_depot_that_never_closes(solver):
    """Windows without an end, as large numbers, do not cost resolution: 3-4-5 again."""
    windows = torch.tensor([[[0.0, 1e9], [0.0, 1e9], [0.0, 1e9]]])
    td = cvrp(
        torch.tensor([[[3.0, 0.0], [3.0, 4.0]]]),
        [0.1, 0.1],
        durations=torch.zeros(1, 3),
        time_windows=windows,
    )
    _, costs = solve(get_env("cvrptw"), td, solver)
    assert costs.tolist() == pytest.approx([12.0])


@pytest.mark.parametrize(("limit", "prize"), [(12.0, 3.0), (11.9, 2.0)])
def test_a_tour_can_be_as_long_as_allowed(solver, limit, prize):
    """Orienteering on the triangle 3-4-5: all of it if 12 is allowed, else the better one."""
    td = TensorDict(
        {
            "locs": torch.tensor([[[3.0, 0.0], [3.0, 4.0]]]),
            "depot": torch.zeros(1, 2),
            "prize": torch.tensor([[1.0, 2.0]]),
            "max_length": torch.tensor([limit]),
        },
        batch_size=[1],
    )
    env = get_env("op", length_margin=-1e-4)
    _, costs = solve(env, td, solver)
    assert costs.tolist() == pytest.approx([-prize])


def test_a_matrix_with_forbidden_legs(solver):
    """Legs of a million do not cost resolution: the only cheap tour has length 0.1 · 4."""
    matrix = torch.full((1, 4, 4), 1e6)
    for origin, destination in [(0, 2), (2, 1), (1, 3), (3, 0)]:
        matrix[0, origin, destination] = 0.1
    td = TensorDict({"cost_matrix": matrix}, batch_size=[1])
    actions, costs = solve(get_env("atsp"), td, solver)
    assert actions.tolist() == [[0, 2, 1, 3]]
    assert costs.tolist() == pytest.approx([0.4])


@pytest.mark.parametrize("kind", [1.0, 2.0])
def test_customers_with_both_demands(solver, kind):
    """Two customers that give and take 0.6 each: one route, if the first one takes before it gives.

    At 1 and 2 on a line. Together they get 1.2, more than a vehicle carries: 2 + 4. With 0.4 each
    the load is 0.8 all the way in class 2: 4. In class 1 the second would get after the first gave.
    """
    td = TensorDict(
        {
            "locs": line(0.0, 1.0, 2.0),
            "demand_linehaul": torch.tensor([[0.0, 0.4, 0.4]]),
            "demand_backhaul": torch.tensor([[0.0, 0.4, 0.4]]),
            "backhaul_class": torch.tensor([[kind]]),
            "vehicle_capacity": torch.ones(1, 1),
            "capacity_original": torch.full((1, 1), 10.0),
            "open_route": torch.zeros(1, 1, dtype=torch.bool),
            "distance_limit": torch.full((1, 1), math.inf),
            "time_windows": torch.tensor([[[0.0, math.inf]] * 3]),
            "service_time": torch.zeros(1, 3),
            "speed": torch.ones(1, 1),
        },
        batch_size=[1],
    )
    env = get_env("mtvrp")
    _, costs = solve(env, td, solver)
    assert costs.tolist() == pytest.approx([6.0 if kind == 1 else 4.0])
    heavy = td.clone()
    heavy["demand_linehaul"] = heavy["demand_linehaul"] * 1.5
    _, costs = solve(env, heavy, solver)
    assert costs.tolist() == pytest.approx([6.0])


# ---------------------------------------------------------------- integers


def test_lengths_in_integers():
    """The median of 1, 2, 3 (each twice) is 2: it becomes the resolution; nothing gets shorter."""
    length = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    problem = to_integers(RoutingProblem(length, (1, 2), (Vehicle(max_length=4.1),)))
    half = RESOLUTION // 2
    assert problem.length.tolist() == [
        [0, half, 2 * half],
        [half, 0, 3 * half],
        [2 * half, 3 * half, 0],
    ]
    assert problem.vehicles[0].max_length == math.floor(4.1 * half)
    assert problem.unit == pytest.approx(1 / half)
    assert problem.cost([Route(0, [1, 2])]) == pytest.approx(6.0)


def test_rounding_is_on_the_safe_side():
    """Random numbers: lengths, times and loads never shrink, limits never grow."""
    rng = np.random.default_rng(0)
    length, loads = rng.random((6, 6)), rng.random(6)
    windows = np.sort(rng.random((6, 2)) * 5, 1)
    vehicle = Vehicle(capacity=1.7, max_length=3.3)
    problem = RoutingProblem(
        length, (1, 2, 3, 4, 5), (vehicle,),
        delivery=loads, duration=length * 2, service=loads, windows=windows,
    )  # fmt: skip
    whole = to_integers(problem)
    assert (whole.length * whole.unit >= length * (1 - 1e-12)).all()
    assert whole.vehicles[0].max_length * whole.unit <= 3.3
    # Units of loads and times, from what is known to be rounded up.
    load_unit = 1.7 / whole.vehicles[0].capacity
    assert (whole.delivery * load_unit >= loads * (1 - 1e-12)).all()
    time_unit = (problem.duration / np.where(whole.duration > 0, whole.duration, 1)).max()
    assert (whole.service * time_unit >= loads * (1 - 1e-12)).all()
    assert (whole.windows[:, 1] * time_unit <= windows[:, 1] * (1 + 1e-6)).all()
    assert whole.length.dtype == whole.windows.dtype == np.int64


def test_whole_demands_stay_whole():
    """Generated demands are integers of the capacity, whatever float32 makes of them."""
    env = get_env("cvrp", generator_params={"num_loc": 100})
    instances = env.generator(4, rng=torch.Generator().manual_seed(0))
    for row, instance in enumerate(instances_of(env.reset(instances))):
        problem = to_integers(formulation_of(env, RoutingFormulation).formulate(env, instance))
        units = (instances["demand"][row] * instances["capacity"][row]).round().long()
        assert problem.delivery[1:].tolist() == units.tolist()
        assert problem.vehicles[0].capacity == instances["capacity"][row]


def test_negative_costs_are_shifted_only_where_all_solutions_have_as_many_legs():
    """A tour can be shifted; routes cannot, since their number is not fixed."""
    length = np.array([[0.0, -1.0, 2.0], [1.0, 0.0, -3.0], [2.0, 3.0, 0.0]])
    tour = RoutingProblem(length, (1, 2), (Vehicle(),))
    shifted = to_integers(tour)
    assert (shifted.length >= 0).all()
    assert shifted.cost([Route(0, [1, 2])]) == pytest.approx(tour.cost([Route(0, [1, 2])]))
    with pytest.raises(UnsupportedError, match="not negative, got -3"):
        to_integers(RoutingProblem(length, (1, 2), (Vehicle(count=2),)))


# ---------------------------------------------------------------- who solves what


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        ("tsp", "lkh"), ("atsp", "lkh"), ("shpp", "lkh"), ("cvrp", "pyvrp"), ("mtvrp", "pyvrp"),
        ("pctsp", "pyvrp"), ("pdp", "pyvrp"), ("mtsp", "ortools"), ("mdcpdp", "ortools"),
        ("sdvrp", "insertion"), ("jssp", "cpsat"), ("fjsp", "cpsat"), ("ffsp", "cpsat"),
        ("smtwtp", "cpsat"),
    ],
)  # fmt: skip
def test_default_solvers(problem, expected):
    """The solver made for the problem, then PyVRP, then OR-Tools, then heuristics."""
    assert make_sized_env(problem, 6).default_solver() is SOLVERS[expected]


@pytest.mark.parametrize(
    ("problem", "options", "name", "reason"),
    [
        ("mtsp", {}, "pyvrp", "longest route"),
        ("mdcpdp", {}, "pyvrp", "lateness"),
        ("mdcpdp", {"reward_mode": "lateness_square"}, "ortools", "not linear"),
        ("cvrp", {}, "lkh", "LKH cannot solve this cvrp.*tours and paths"),
        ("jssp", {}, "lkh", "routing formulation, got 'jssp' with a scheduling"),
        ("tsp", {}, "cpsat", "'cpsat' cannot solve tsp.*scheduling formulation"),
    ],
)
def test_what_cannot_be_solved_is_rejected(problem, options, name, reason):
    """With the reason, before any time is spent."""
    env = get_env(problem, **options)
    with pytest.raises(UnsupportedError, match=reason):
        env.solve(env.generate(1), solver=name)


def test_pyvrp_rejects_customers_without_demand_between_backhauls():
    """It keeps the order of classes by forbidding legs, which such a customer would circumvent."""
    env = get_env("mtvrp", generator_params={"num_loc": 5, "variant_preset": "vrpb"})
    td = env.generator(1, rng=torch.Generator().manual_seed(0))
    td["demand_linehaul"][:, 1:] = torch.tensor([0.1, 0.2, 0.0, 0.0, 0.0])
    td["demand_backhaul"][:, 1:] = torch.tensor([0.0, 0.0, 0.1, 0.2, 0.0])
    with pytest.raises(UnsupportedError, match="without demand"):
        env.solve(td, solver="pyvrp")


@pytest.mark.parametrize(
    ("problem", "name", "install"),
    [
        ("tsp", "pyvrp", r"'rl4co\[solvers\]'"),
        ("tsp", "ortools", r"'rl4co\[solvers\]'"),
        ("tsp", "lkh", r"'rl4co\[solvers\]'"),
        ("ffsp", "cpsat", r"'rl4co\[solvers\]'"),
        ("flp", "highs", r"'rl4co\[solvers\]'"),
        ("flp", "scip", r"'rl4co\[solvers\]'"),
        ("flp", "gurobi", "'gurobipy'"),
    ],
)
def test_missing_packages_name_the_line_that_installs_them(problem, name, install, monkeypatch):
    file = "_mip" if problem == "flp" else name
    monkeypatch.setattr(
        importlib.import_module(f"rl4co.solvers.{file}"), "find_spec", lambda _: None
    )
    env = get_env(problem)
    with pytest.raises(MissingDependencyError, match=f"pip install {install}"):
        env.solve(env.generate(1), solver=name)


def test_old_releases_of_pyvrp_are_rejected(monkeypatch):
    """Their models are made of other parts; Python 3.10 gets no other."""
    pytest.importorskip("pyvrp")
    module = importlib.import_module("rl4co.solvers.pyvrp")
    monkeypatch.setattr(module, "version", lambda _: "0.11.3")
    env = get_env("cvrp", generator_params={"num_loc": 5})
    with pytest.raises(UnsupportedError, match=r"pyvrp 0\.14 or later.*got 0\.11\.3"):
        env.solve(env.generate(1), solver="pyvrp")


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("pyvrp", {"max_runtime": 0}, ConfigError, "max_runtime"),
        ("ortools", {"max_runtime": 0}, ConfigError, "max_runtime"),
        ("ortools", {"max_runtime": math.nan}, ConfigError, "max_runtime"),
        ("pyvrp", {"max_iterations": 0}, ConfigError, "max_iterations"),
        ("pyvrp", {"seed": -1}, ConfigError, "seed"),
        ("ortools", {"max_solutions": 0}, ConfigError, "max_solutions"),
        ("pyvrp", {"max_iteration": 5}, UnknownNameError, "max_iterations"),
        ("pyvrp", {"max_vehicles": 0}, ConfigError, "max_vehicles of at least 1"),
        ("insertion", {"speed": 5}, UnknownNameError, "option of the solver 'insertion'"),
    ],
)
def test_bad_options(name, options, error, message):
    """Wrong settings are rejected before anything is solved."""
    env = get_env("cvrp", generator_params={"num_loc": 5})
    with pytest.raises(error, match=message):
        env.solve(env.generate(1), solver=name, **options)


def test_no_solution_is_an_error(solver):
    """Two vehicles cannot carry three times 0.6; the message names the instances."""
    td = cvrp(line(1.0, 2.0, 3.0), [0.6, 0.6, 0.6], max_vehicle=torch.full((1, 1), 2.0))
    with pytest.raises(RL4COError, match="none of instances 0; raise max_runtime"):
        solve(get_env("cvrpmvc"), td, solver)


@pytest.mark.parametrize("name", ["pyvrp", "ortools", "insertion"])
@pytest.mark.parametrize("problem", ["cvrp", "cvrptw"])
def test_the_number_of_vehicles_is_held(name, problem, monkeypatch):
    """Cheaper with two routes; one has to do, and where it cannot, that is an error."""
    if name != "insertion":
        pytest.importorskip(name)
    monkeypatch.setattr("rl4co.solvers._routing.map_instances", in_process)
    windows = torch.tensor([[[0.0, 99.0], [0.0, 99.0], [0.0, 99.0]]])
    timed = {"durations": torch.zeros(1, 3), "time_windows": windows}
    more = timed if problem == "cvrptw" else {}
    matrix = torch.tensor([[[0.0, 1, 1], [1, 0, 9], [1, 9, 0]]])
    td, env = cvrp(line(1.0, -1.0), [0.5, 0.5], cost_matrix=matrix, **more), get_env(problem)
    assert env.solve(td, solver=name, max_runtime=5.0, **QUICK[name])[1].tolist() == [4.0]
    held = {"max_runtime": 5.0, "max_vehicles": 1, **QUICK[name]}
    assert env.solve(td, solver=name, **held)[1].tolist() == [11.0]
    td["demand"] = torch.tensor([[0.5, 0.6]])
    with pytest.raises(NoSolutionError):
        env.solve(td, solver=name, **held)
    del td["cost_matrix"]  # large instances have none
    with pytest.raises(NoSolutionError):
        env.solve(td, solver=name, **held)


def test_split_deliveries_are_not_looked_for(solver):
    """Three customers of 2/3 at distance 1: three routes of 2; the same place, but two would do."""
    # The fourth customer, far away, wants nothing and is not visited.
    td = cvrp(line(1.0, 1.0, 1.0, 9.0), [2 / 3, 2 / 3, 2 / 3, 0.0])
    _, costs = solve(get_env("sdvrp"), td, solver)
    assert costs.tolist() == pytest.approx([6.0])


def test_an_environment_with_another_objective_is_noticed(solver):
    """A subclass that counts costs differently would get solutions of another problem."""

    class Doubled(CVRPEnv):
        def _objective(self, state, actions):
            return 2.0 * super()._objective(state, actions)

    with pytest.raises(RL4COError, match=r"agree on costs, got 6 and 12"):
        solve(Doubled(), cvrp(line(1.0, 2.0, 3.0), [0.1, 0.2, 0.3]), solver)


# ---------------------------------------------------------------- processes and seeds


def test_workers_do_not_import_torch():
    """A worker process starts in a fraction of a second."""
    names = ["_lkh_worker", "_lkh3.worker", "_insertion_worker", "_worker"]
    packages = {"_pyvrp_worker": "pyvrp", "_ortools_worker": "ortools", "_cpsat_worker": "ortools"}
    packages["_feasibility.cpsat_worker"] = "ortools"
    names += [name for name, package in packages.items() if importlib.util.find_spec(package)]
    imports = ", ".join(f"rl4co.solvers.{name}" for name in names)
    script = f"import sys, {imports}; print(sorted({{'torch', 'tensordict'}} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.solvers
def test_pyvrp_in_processes():
    """Processes and neighbours in the batch change nothing; a seed does."""
    pytest.importorskip("pyvrp")
    env = get_env("cvrp", generator_params={"num_loc": 40})
    td = env.generator(4, rng=torch.Generator().manual_seed(0))
    settings = {"solver": "pyvrp", "max_runtime": 60.0, "max_iterations": 30}
    one = env.solve(td, num_procs=1, **settings)[0]
    two = env.solve(td, num_procs=2, **settings)[0]
    assert torch.equal(one, two)
    alone = env.solve(td[2:3], **settings)[0][0]
    assert torch.equal(alone[: one.shape[1]], one[2, : len(alone)])
    assert not torch.equal(env.solve(td, seed=1, **settings)[0], one)


@pytest.mark.solvers
def test_ortools_in_processes():
    """The same in two processes as in one."""
    pytest.importorskip("ortools")
    env = get_env("pdp", generator_params={"num_loc": 20})
    td = env.generator(3, rng=torch.Generator().manual_seed(0))
    settings = {"solver": "ortools", "max_runtime": 60.0, "max_solutions": 20}
    one, two = (env.solve(td, num_procs=procs, **settings)[0] for procs in (1, 2))
    assert torch.equal(one, two)


# ---------------------------------------------------------------- heuristics


@pytest.mark.parametrize("problem", ROUTING)
def test_heuristics_solve_every_routing_problem(problem, monkeypatch):
    """Insertion, nearest neighbour and chance give valid solutions of any size."""
    monkeypatch.setattr("rl4co.solvers._routing.map_instances", in_process)
    env = make_sized_env(problem, 12)
    td = env.generator(3, rng=torch.Generator().manual_seed(0))
    costs = {}
    for name in ("insertion", "nearest_neighbor", "random"):
        actions, costs[name] = env.solve(td, solver=name)
        assert len(actions) == len(costs[name]) == 3
    assert costs["insertion"].mean() <= costs["random"].mean()


def test_cheapest_insertion_by_hand():
    """Cities at 0, 4, 1, 3 on a line: 1 goes first (2 more), then 3 (4 more), then 4 (2 more)."""
    env = get_env("tsp")
    actions, costs = env.solve(
        TensorDict({"locs": line(0.0, 4.0, 1.0, 3.0)}, batch_size=[1]), solver="insertion"
    )
    assert costs.tolist() == [8.0]
    assert actions.tolist() in ([[0, 2, 3, 1]], [[0, 1, 3, 2]])


def test_insertion_packs_scarce_vehicles():
    """0.6, 0.6, 0.4, 0.4 fit two vehicles only in pairs; the near 0.4s must not travel together."""
    td = cvrp(line(10.0, 10.1, 1.0, 1.1), [0.6, 0.6, 0.4, 0.4], max_vehicle=torch.full((1, 1), 2.0))
    actions, _ = get_env("cvrpmvc").solve(td, solver="insertion")
    routes = "".join(map(str, actions[0].tolist())).strip("0").split("0")
    assert sorted(len(route) for route in routes) == [2, 2]


def test_nearest_neighbor_goes_home_last():
    """Orienteering: the depot is nearest and always allowed, but customers come first."""
    td = TensorDict(
        {
            "locs": line(1.0, 2.0),
            "depot": torch.zeros(1, 2),
            "prize": torch.ones(1, 2),
            "max_length": torch.tensor([5.0]),
        },
        batch_size=[1],
    )
    actions, costs = get_env("op").solve(td, solver="nearest_neighbor")
    assert actions.tolist() == [[1, 2, 0]] and costs.tolist() == [-2.0]
