"""Solvers agree with brute force on tiny instances of every problem, variant and option.

Each case is solved three ways: by trying all action sequences that the environment allows, by
trying all routes of its formulation, and by the solvers that can solve it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import itertools
import math
import subprocess
import sys

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from tensordict import TensorDict

from rl4co.core.errors import UnsupportedError
from rl4co.core.registry import FORMULATIONS, SOLVERS
from rl4co.envs import get_env
from rl4co.envs.arguments import reject_masked
from rl4co.envs.routing.mtvrp.variants import VARIANTS
from rl4co.envs.testing import enumerate_solutions
from rl4co.solvers._integers import to_integers
from rl4co.solvers._problem import Route, RoutingProblem
from rl4co.solvers.formulations import RoutingFormulation, formulation_of, instances_of

#: Settings with which solvers are quick.
QUICK: dict[str, dict[str, Any]] = {
    "pyvrp": {"max_runtime": 5.0, "max_iterations": 200},
    # Where it finds no more solutions to count, it searches until time is up.
    "ortools": {"max_runtime": 0.3, "max_solutions": 60},
    "lkh": {"runs": 2},
    "insertion": {},
}
#: Package that a solver needs.
PACKAGES = {"pyvrp": "pyvrp", "ortools": "ortools", "lkh": "elkai"}

BOTH, EVERY = ("pyvrp", "ortools"), ("pyvrp", "ortools", "lkh")
BATCH = 2


def asymmetric(
    key: str = "cost_matrix", nodes: int = 6, scale: float = 1.0, drop: Sequence[str] = ()
):
    """Adds a matrix of shortest ways in a random graph and drops what it replaces.

    Shortest, because masks that leave a way back may be stricter than constraints otherwise.
    """

    def change(td: TensorDict) -> TensorDict:
        rng = torch.Generator().manual_seed(7)
        matrix = (torch.rand(*td.batch_size, nodes, nodes, generator=rng) + 0.2) * scale
        for via in range(nodes):
            detour = matrix[:, :, via, None] + matrix[:, None, via, :]  # [B, N, N]
            matrix = torch.minimum(matrix, detour)
        return td.exclude(*drop).set(key, matrix * ~torch.eye(nodes, dtype=torch.bool))

    return change


def with_values(**values: Any):
    """Sets the same value for all instances."""

    def change(td: TensorDict) -> TensorDict:
        for key, value in values.items():
            tensor = torch.as_tensor(value)
            td = td.set(key, tensor.expand(*td.batch_size, *tensor.shape).clone())
        return td

    return change


def raw_units(td: TensorDict) -> TensorDict:
    """Demands in the units of the capacity."""
    return td.set("demand", td["demand"] * td["capacity"]).set("vehicle_capacity", td["capacity"])


@dataclasses.dataclass(frozen=True)
class Case:
    """Tiny instances, and who can solve them."""

    problem: str
    size: int = 5
    env: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    generator: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    change: Callable[[TensorDict], TensorDict] = lambda td: td
    solvers: Sequence[str] = BOTH


PLACES = ("locs", "depot")
SCARCE = {"capacity": 15}
FRACTIONS = torch.tensor([0.31, 0.42, 0.27, 0.58, 0.36])
DEPOTS = {"num_agents": 2, "min_capacity": 1, "max_capacity": 2}
WEIGHTS = {**DEPOTS, "min_lateness_weight": 0.2}

CASES: dict[str, Case] = {
    "tsp": Case("tsp", 6, solvers=EVERY),
    "tsp negative": Case("tsp", change=lambda td: asymmetric(nodes=5)(td).apply(
        lambda x: x - 0.7), solvers=EVERY),
    "tsp_dense": Case("tsp_dense", solvers=EVERY),
    "atsp": Case("atsp", 6, solvers=EVERY),
    "shpp": Case("shpp", 7, solvers=EVERY),
    "shpp matrix": Case("shpp", 6, change=asymmetric(drop=["locs"]), solvers=EVERY),
    "mtsp sum": Case("mtsp", env={"cost_type": "sum"}),
    "mtsp minmax": Case("mtsp", 6, generator={"min_num_agents": 2, "max_num_agents": 3},
                        solvers=["ortools"]),
    "cvrp": Case("cvrp", generator=SCARCE),
    "cvrp full": Case("cvrp", change=with_values(demand=torch.tensor([1.0, 1, 1, 2, 1]) / 3)),
    "cvrp raw": Case("cvrp", generator=SCARCE, change=raw_units),
    "cvrp fractions": Case("cvrp", change=with_values(demand=FRACTIONS)),
    "cvrp matrix": Case("cvrp", generator=SCARCE, change=asymmetric(drop=PLACES)),
    "cvrpmvc": Case("cvrpmvc", generator=SCARCE),
    "cvrptw": Case("cvrptw", generator=SCARCE),
    "cvrptw service": Case("cvrptw", generator={"duration": 30.0, "scale": True}),
    "cvrptw durations": Case("cvrptw", change=asymmetric("duration_matrix", scale=50.0)),
    "svrp": Case("svrp"),
    "svrp rates": Case("svrp", change=with_values(tech_costs=torch.tensor([0.7, 1.3, 1.1]))),
    "op dist": Case("op", 6, generator={"max_length": 1.7}),
    "op const": Case("op", 6, {"prize_type": "const"}, {"max_length": 1.5}),
    "op unif": Case("op", 6, {"prize_type": "unif"}, {"max_length": 1.9}),
    "op matrix": Case("op", change=asymmetric(drop=PLACES)),
    "op nothing": Case("op", change=with_values(max_length=0.0)),
    "pctsp": Case("pctsp", 6),
    "pctsp everything": Case("pctsp", change=with_values(
        prize_required=1.0, deterministic_prize=torch.full((5,), 0.2))),
    "pctsp nothing": Case("pctsp", change=with_values(prize_required=0.0)),
    "pctsp cheap": Case("pctsp", 6, change=with_values(penalty=torch.full((6,), 0.01))),
    "pctsp matrix": Case("pctsp", change=asymmetric(drop=PLACES)),
    "spctsp": Case("spctsp", 6),
    "spctsp too little": Case("spctsp", change=with_values(stochastic_prize=torch.full((5,), 0.1))),
    "pdp": Case("pdp", 6),
    "pdp forced": Case("pdp", 6, env={"force_start_at_depot": True}),
    "mdcpdp sum": Case("mdcpdp", 6, {"reward_mode": "minsum"}, DEPOTS),
    "mdcpdp sum closed": Case(
        "mdcpdp", 4, {"reward_mode": "minsum", "problem_mode": "close", "dist_mode": "L1"}, DEPOTS),
    "mdcpdp minmax": Case("mdcpdp", 6, {"reward_mode": "minmax"}, DEPOTS, solvers=["ortools"]),
    "mdcpdp lateness": Case("mdcpdp", 6, {}, {"num_agents": 3}, solvers=["ortools"]),
    "mdcpdp lateness closed": Case(
        "mdcpdp", 6, {"problem_mode": "close"}, WEIGHTS, solvers=["ortools"]),
    "sdvrp": Case("sdvrp", 4, generator=SCARCE, solvers=[]),
}  # fmt: skip


def tight_limits(td: TensorDict) -> TensorDict:
    """Distance limits that bind, where there are any."""
    away = (td["locs"] - td["locs"][:, :1]).norm(dim=-1).amax(-1, keepdim=True)  # [B, 1]
    limited = td["distance_limit"] < math.inf
    return td.set("distance_limit", torch.where(limited, 2.1 * away, td["distance_limit"]))


def mtvrp_instances(env: Any, size: int, rng: torch.Generator, **options: Any) -> TensorDict:
    """One instance of every variant."""
    settings = {"num_loc": size, "capacity": 15, "backhaul_ratio": 0.5, **options}
    batches = [
        type(env.generator)(variant_preset=variant, **settings)(1, rng=rng) for variant in VARIANTS
    ]
    return tight_limits(torch.cat(batches))


VARIANT_OPTIONS: dict[str, dict[str, Any]] = {
    "mtvrp": {},
    "mtvrp mixed": {"backhaul_class": 2},
    "mtvrp slow": {"speed": 0.8, "max_time": 6.0, "scale_demand": False},
}


@functools.cache
def make(name: str, size: int | None = None) -> tuple[Any, TensorDict]:
    """Environment and instances of a case, of its own size or another."""
    rng = torch.Generator().manual_seed(5)
    if name in VARIANT_OPTIONS:
        env = get_env("mtvrp")
        return env, mtvrp_instances(env, size or 5, rng, **VARIANT_OPTIONS[name])
    case = CASES[name]
    settings = {"num_loc": size or case.size, **case.generator}
    env = get_env(case.problem, generator_params=settings, **case.env)
    return env, case.change(env.generator(BATCH, rng=rng))


@functools.cache
def optima(name: str, size: int | None = None) -> list[float]:
    """Least cost of all action sequences that the environment allows, for each instance."""
    env, instances = make(name, size)
    td = env.reset(instances)
    best = []
    for row, instance in enumerate(instances):
        solutions = sorted(enumerate_solutions(env, instance), key=len)
        costs = []
        for _, group in itertools.groupby(solutions, key=len):
            actions = torch.tensor(list(group))  # [R, T]
            state = td[row : row + 1].expand(len(actions))
            costs.append(-float(env.get_reward(state, actions, check_solution=True).max()))
        best.append(min(costs))
    return best


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run here: starting processes takes longer than solving tiny instances."""

    def call_all(target: str, jobs: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
        module, function = target.split(":")
        return [getattr(importlib.import_module(module), function)(*job) for job in jobs]

    monkeypatch.setattr("rl4co.solvers._routing.map_instances", call_all)


def require(solver: str) -> None:
    if solver in PACKAGES and importlib.util.find_spec(PACKAGES[solver]) is None:
        pytest.skip(f"no {PACKAGES[solver]}")


def replay(env: Any, td: TensorDict, actions: torch.Tensor) -> None:
    """Steps through solutions; every action must be allowed, and all must be finished."""
    state = dict(td.items())
    for action in actions.unbind(-1):
        reject_masked(env.name, state, action)
        state = env.advance(state, action)
    assert state["done"].all()


# ---------------------------------------------------------------- solvers


PAIRS = [(name, solver) for name, case in CASES.items() for solver in case.solvers]
PAIRS += [(name, solver) for name in VARIANT_OPTIONS for solver in BOTH]


@pytest.mark.solvers
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(("name", "solver"), PAIRS)
def test_solvers_find_the_optimum(name: str, solver: str):
    """Costs are those of the best action sequence; the actions are allowed step by step."""
    require(solver)
    env, instances = make(name)
    actions, costs = env.solve(instances, solver=solver, **QUICK[solver])
    assert costs.tolist() == pytest.approx(optima(name), abs=1e-4, rel=1e-6)
    replay(env, env.reset(instances), actions)


def solvers_of(name: str) -> list[str]:
    """Solvers whose own costs can be compared, of a case or a variant."""
    chosen = BOTH if name in VARIANT_OPTIONS else CASES[name].solvers
    return [solver for solver in (*BOTH, "insertion") if solver in (*chosen, "insertion")]


@pytest.mark.solvers
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("name", "solver"),
    [(name, solver) for name in (*CASES, *VARIANT_OPTIONS) for solver in solvers_of(name)],
)
def test_solvers_count_as_the_environment_does(name: str, solver: str):
    """What a solver says that its solution costs is the cost, up to one unit for each leg."""
    require(solver)
    env, instances = make(name)
    worker = importlib.import_module(f"rl4co.solvers._{solver}_worker")
    settings = {"pyvrp": (5.0, 50, 0), "ortools": (5.0, 20), "insertion": (5.0,)}[solver]
    formulation, td = formulation_of(env, RoutingFormulation), env.reset(instances)
    for row, instance in enumerate(instances_of(td)):
        problem = formulation.formulate(env, instance)
        prepared = problem if solver == "insertion" else to_integers(problem)
        routes, reported = worker.solve_problem(prepared, *settings)
        actions, _ = formulation.encode(env, problem, routes)
        counted = -env.get_reward(td[row : row + 1], torch.tensor([actions]), check_solution=True)
        legs = sum(len(route.nodes) + 1 for route in routes)
        rate = max(vehicle.rate for vehicle in problem.vehicles)
        # Lateness counts a leg once for every delivery behind it, and rounds its weight.
        units = legs * max(rate, 1.0) * (legs + 5 if problem.objective == "lateness" else 1) + 1
        slack = 1e-6 * (abs(reported) + abs(problem.constant)) + units * prepared.unit
        assert abs(reported - float(counted)) <= slack
        assert problem.cost(routes) == pytest.approx(float(counted), abs=1e-4, rel=1e-6)


# ---------------------------------------------------------------- formulations


def route_plans(problem: RoutingProblem, nodes: tuple[int, ...]) -> Iterator[list[Route]]:
    """All ways to visit some nodes."""
    if len(problem.vehicles) == 1:
        (vehicle,) = problem.vehicles
        for order in itertools.permutations(nodes):
            for cuts in itertools.product([False, True], repeat=max(len(nodes) - 1, 0)):
                if sum(cuts) < vehicle.count:
                    ends = [place for place, cut in enumerate(cuts, 1) if cut]
                    pieces = itertools.pairwise([0, *ends, len(nodes)])
                    yield [Route(0, list(order[i:j])) for i, j in pieces]
        return
    kinds = range(len(problem.vehicles))
    for owners in itertools.product(kinds, repeat=len(nodes)):
        groups = [[n for n, owner in zip(nodes, owners, strict=True) if owner == k] for k in kinds]
        for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
            yield [Route(kind, list(order)) for kind, order in enumerate(orders)]


def exhaustive(problem: RoutingProblem) -> float:
    """Least cost of all feasible routes of a formulation."""
    choices: list[tuple[int, ...]] = [problem.customers]
    if problem.skip_cost is not None:
        sizes = range(len(problem.customers) + 1)
        choices = [c for size in sizes for c in itertools.combinations(problem.customers, size)]
    best = math.inf
    for nodes in choices:
        if problem.prize is not None and problem.prize[list(nodes)].sum() < problem.min_prize:
            continue
        for routes in route_plans(problem, nodes):
            cost = problem.cost(routes)
            if cost < best and all(problem.feasible(route) for route in routes):
                best = cost
    return best


#: Cases whose options fix the number of nodes.
FIXED = {name for name, case in CASES.items() if case.change not in (Case.change, raw_units)}


# The formulation of the SDVRP leaves out split deliveries.
@pytest.mark.parametrize("name", [name for name in (*CASES, *VARIANT_OPTIONS) if name != "sdvrp"])
def test_formulations_have_the_same_optimum(name: str):
    """Neither more nor less is feasible than in the environment, and it costs the same."""
    size = None if name in FIXED else 4
    env, instances = make(name, size)
    formulation = formulation_of(env, RoutingFormulation)
    found = [
        exhaustive(formulation.formulate(env, instance))
        for instance in instances_of(env.reset(instances))
    ]
    assert found == pytest.approx(optima(name, size), abs=1e-4, rel=1e-6)


ROUTING = [
    name
    for name, formulation in FORMULATIONS.items()
    if issubclass(formulation, RoutingFormulation)
]


def test_every_routing_formulation_has_a_case():
    """What is handed to solvers is compared with brute force here."""
    assert set(ROUTING) - {"mtvrp"} == {case.problem for case in CASES.values()}


@pytest.mark.parametrize("name", [*CASES, *VARIANT_OPTIONS])
def test_insertion_is_feasible_and_no_better_than_the_optimum(name: str, in_process: None):
    """Valid in the environment, and never below the best cost (split deliveries included)."""
    env, instances = make(name)
    actions, costs = env.solve(instances, solver="insertion")
    assert (costs >= torch.tensor(optima(name)) - 1e-4).all()
    replay(env, env.reset(instances), actions)


def test_preferred_solvers_have_cases():
    """A formulation prefers solvers that can solve it, and these reach the optimum here."""
    for name in ROUTING:
        preferred = FORMULATIONS[name].solvers
        assert all(issubclass(RoutingFormulation, SOLVERS[solver].reads) for solver in preferred)
        tested = {s for case in CASES.values() if case.problem == name for s in case.solvers}
        # Cases of the MTVRP are its variants; insertion promises no optimum.
        assert name == "mtvrp" or set(preferred) - {"insertion"} <= tested


def test_lkh_solves_what_is_formulated_as_one_tour():
    """Not by the name of the problem: one agent of the mTSP is a tour, two are not."""
    require("lkh")
    env = get_env("mtsp", generator_params={"num_loc": 7}, cost_type="sum")
    instances = env.generator(2, rng=torch.Generator().manual_seed(3))
    instances["num_agents"] = torch.ones_like(instances["num_agents"])
    actions, costs = env.solve(instances, solver="lkh", runs=2)
    again = env.solve(instances, solver="lkh", runs=2, initial=actions)[1]
    expected = env.solve(instances, solver="ortools", **QUICK["ortools"])[1]
    assert costs.tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert again.tolist() == pytest.approx(costs.tolist(), rel=1e-5)
    instances["num_agents"] += 1
    with pytest.raises(UnsupportedError, match="tours and paths"):
        env.solve(instances, solver="lkh")


def test_default_solver_imports_no_other():
    """Neither the solvers that come later nor those of other kinds of problems."""
    script = (
        "import sys\nfrom rl4co.envs import get_env\n"
        "names = [get_env(name).default_solver().name for name in ('cvrp', 'jssp')]\n"
        "others = ('lkh', 'ortools', 'insertion', 'random', 'nearest_neighbor')\n"
        "assert names == ['pyvrp', 'cpsat'], names\n"
        "assert not {f'rl4co.solvers.{name}' for name in others} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
