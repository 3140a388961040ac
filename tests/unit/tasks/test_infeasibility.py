"""Why there is no solution: answers against enumeration, minimal conflicts, least changes."""

from __future__ import annotations

import dataclasses
import itertools
import time

from collections.abc import Iterator

import numpy as np
import pytest

from rl4co.core.errors import NoSolutionError, StoppedError
from rl4co.data.formats import BenchmarkInstance, EdgeCosts
from rl4co.solvers._cancellation import CancelToken, is_cancelled
from rl4co.solvers._feasibility import checker as checker_module
from rl4co.solvers._feasibility.bounds import needs_more_vehicles
from rl4co.solvers._feasibility.checker import (
    FeasibilityChecker,
    satisfies_all,
    with_vehicle,
)
from rl4co.solvers._feasibility.conflict import KINDS, Conflict, find_conflict, without
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.approaches import Answer, BySolver
from rl4co.tasks.infeasibility import analysis as analysis_module
from rl4co.tasks.infeasibility.analysis import GRACE, InfeasibilityAnalysis
from rl4co.tasks.infeasibility.explanation import accept, explain, explained, formulate

#: Five customers of 4 for two vehicles of 10: the total fits, and so do all pairs, but no three.
POINTS = np.array([[0.0, 0], [0, 3], [4, 3], [4, 0], [2, 8], [5, 5]])
PACKED = BenchmarkInstance(
    "packed",
    "cvrp",
    EdgeCosts.of_points(POINTS),
    POINTS,
    demand=np.array([0.0, 4, 4, 4, 4, 4]),
    capacity=10.0,
    vehicles=2,
    labels=("depot", "Ann", "Bo", "Cid", "Dan", "Eve"),
)


def reason(instance: BenchmarkInstance, advice: str = "wait", limit: float = 20.0) -> str:
    """Why there is no solution, and what would help."""
    with InfeasibilityAnalysis(instance, formulate(instance), limit) as search:
        return str(explain(instance, search.wait(), "none", advice))


def random_problem(rng: np.random.Generator) -> RoutingProblem:
    """Five customers, up to two vehicles, two of three limits; some backhauls and open routes."""
    points = rng.random((6, 2)) * 100
    length = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    fleet = Vehicle(count=int(rng.integers(1, 3)), end=None if rng.random() < 0.3 else 0)
    loads = np.append(0.0, rng.integers(1, 6, 5))
    problem = RoutingProblem(length, (1, 2, 3, 4, 5), (fleet,), delivery=loads)
    if rng.random() < 0.3:
        pickup = np.where(np.arange(6) > 3, loads, 0.0)
        problem = dataclasses.replace(
            problem, delivery=loads - pickup, pickup=pickup, deliveries_first=True
        )
    kinds = rng.choice(3, 2, replace=False)
    if 0 in kinds:
        problem = with_vehicle(problem, capacity=float(rng.integers(5, 14)))
    if 1 in kinds:
        problem = with_vehicle(problem, max_length=float(rng.uniform(150, 350)))
    if 2 in kinds:
        opening = np.append(0.0, rng.uniform(50, 300, 5))
        closing = np.append(500.0, opening[1:] + rng.uniform(20, 150))
        windows, service = np.stack([opening, closing], 1), np.append(0.0, np.full(5, 10.0))
        problem = dataclasses.replace(problem, duration=length, windows=windows, service=service)
    return problem


def has_solution(problem: RoutingProblem) -> bool:
    """By enumeration of all orders of customers and of all places to cut them into routes."""
    (fleet,), size = problem.vehicles, len(problem.customers)
    for order in itertools.permutations(problem.customers):
        for cuts in itertools.combinations(range(1, size), fleet.count - 1):
            parts = [order[a:b] for a, b in itertools.pairwise((0, *cuts, size))]
            if all(problem.feasible(Route(0, list(part))) for part in parts):
                return True
    return False


@pytest.fixture(scope="module")
def checker() -> Iterator[FeasibilityChecker]:
    pytest.importorskip("ortools")
    with WorkerPool() as pool:
        yield FeasibilityChecker(pool, seconds=120)


# ---------------------------------------------------------------- answers and conflicts


@pytest.mark.solvers
def test_answers_are_those_of_enumeration(checker: FeasibilityChecker):
    """Either routes or a proof, both ways, and conflicts of which no part can be left out."""
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(60):
        problem = random_problem(rng)
        solvable = has_solution(problem)
        seen[solvable] += 1
        routes = checker.find_routes(problem)
        assert (routes is not None) == solvable != checker.is_infeasible(problem)
        assert routes is None or satisfies_all(problem, routes)
        assert not (solvable and needs_more_vehicles(problem))
        conflict = find_conflict(problem, checker)
        assert (conflict is None) == solvable
        if conflict is not None:
            check_conflict(problem, conflict)
    assert min(seen.values()) > 10


def check_conflict(problem: RoutingProblem, conflict: Conflict) -> None:
    """Impossible as it is, and the smallest that is, as far as customers go."""
    assert conflict.is_minimal
    kept = without(problem, [kind for kind in KINDS if kind not in conflict.kinds])
    assert not is_servable(kept, conflict.customers)
    smaller = itertools.combinations(problem.customers, len(conflict.customers) - 1)
    assert all(is_servable(kept, group) for group in smaller)


def is_servable(problem: RoutingProblem, customers: tuple[int, ...]) -> bool:
    """Whether any number of the vehicles can serve these customers."""
    part, most = dataclasses.replace(problem, customers=customers), problem.vehicles[0].count
    counts = range(1, min(most, len(customers)) + 1)
    return not customers or any(has_solution(with_vehicle(part, count=k)) for k in counts)


def test_bounds_need_no_solver():
    """The total of loads; customers of whom no two fit one route, also by roundabout ways."""
    length = np.full((4, 4), 10.0)
    np.fill_diagonal(length, 0.0)
    fleet = Vehicle(count=2, capacity=10.0)
    problem = RoutingProblem(length, (1, 2, 3), (fleet,), delivery=np.array([0.0, 7, 7, 7]))
    assert needs_more_vehicles(problem)
    assert needs_more_vehicles(dataclasses.replace(problem, delivery=np.array([0.0, 6, 6, 6])))
    assert not needs_more_vehicles(dataclasses.replace(problem, delivery=np.array([0.0, 6, 6, 4])))
    windows = np.array([[0.0, 100], [20, 25], [20, 25], [20, 25]])
    timed = dataclasses.replace(
        problem, delivery=None, duration=length, service=np.zeros(4), windows=windows
    )
    assert needs_more_vehicles(timed)
    length[1, 0] = length[0, 2] = 1.0  # 1 to 2 takes 2 over the depot
    assert not needs_more_vehicles(timed)


# ---------------------------------------------------------------- explanations


@pytest.mark.solvers
def test_a_packing_that_only_a_proof_excludes():
    """No bound sees it; four more of any customer's load would not do, two more of capacity do."""
    pytest.importorskip("ortools")
    assert reason(PACKED) == (
        "packed: expected routes of at most 2 vehicles, got a proof that there are none: customer "
        "Ann (demand 4), customer Bo (demand 4), customer Cid (demand 4), customer Dan (demand 4) "
        "and customer Eve (demand 4), with a total demand of 20, cannot all be served by 2 "
        "vehicles within a capacity of 10; there are some with 3 vehicles (--vehicles 3), with a "
        "capacity of 12 (2 more) or without customer Ann"
    )


def test_without_a_proof_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch):
    """Where neither OR-Tools nor PyVRP is installed, insertion still finds what would help."""
    monkeypatch.setattr(checker_module, "find_spec", lambda name: None)
    assert reason(PACKED) == (
        "packed: expected routes of at most 2 vehicles, got none, and no proof that there are "
        "none; wait; there are some with 3 vehicles (--vehicles 3)"
    )


@pytest.mark.solvers
def test_an_interrupt_before_there_is_a_proof():
    """The message does not advise more time."""
    token = CancelToken()
    token.stop.set()
    with token.active():
        text = reason(PACKED, "raise --max-runtime", limit=3.0)
    assert text == (
        "packed: expected routes of at most 2 vehicles, got none, and an interrupt before it was "
        "known why; allow more (--vehicles)"
    )


def test_enough_vehicles_are_known_however_long_the_reason_takes(monkeypatch: pytest.MonkeyPatch):
    """They are computed first."""

    def take_all_time(problem: RoutingProblem, checker: FeasibilityChecker) -> Conflict:
        checker._deadline = 0.0
        return Conflict(("capacity",), problem.customers, is_minimal=False)

    monkeypatch.setattr(analysis_module, "reduce_conflict", take_all_time)
    assert reason(PACKED).endswith(
        "; there may be a smaller reason, for which no time was left (raise --max-runtime); there "
        "are some with 3 vehicles (--vehicles 3)"
    )


def test_no_time_for_a_reason():
    """That is said, where no bound gives one at once."""
    start = time.perf_counter()
    assert reason(PACKED, "raise --max-runtime", limit=0.0) == (
        "packed: expected routes of at most 2 vehicles, got none, and no time left to look for the "
        "reason; raise --max-runtime; allow more (--vehicles)"
    )
    scarce = dataclasses.replace(PACKED, demand=np.array([0.0, 6, 6, 6, 1, 1]))
    assert "customer Ann (demand 6), customer Bo (demand 6) and customer Cid" in reason(
        scarce, limit=0.0
    )
    assert time.perf_counter() - start < 20 * GRACE


def test_a_proof_stops_the_solver():
    """As soon as infeasibility is proven."""
    pytest.importorskip("ortools")

    def solve() -> None:
        until = time.perf_counter() + 60.0
        while not is_cancelled():
            assert time.perf_counter() < until
            time.sleep(0.01)
        raise StoppedError("expected a solution, got a stop")

    proof = pytest.raises(NoSolutionError, match="a proof that there are none")
    with proof, explained(PACKED, limit=120.0):
        solve()


def test_longer_routes():
    """Three customers, 10 away in three directions, are too far for one vehicle."""
    pytest.importorskip("ortools")
    points = np.array([[0.0, 0], [10, 0], [0, 10], [-10, 0]])
    instance = BenchmarkInstance(
        "far", "mtvrp", EdgeCosts.of_points(points, rounding="nearest"), points,
        demand=np.array([0.0, 1, 1, 1]), capacity=3.0, max_length=30.0, vehicles=1,
    )  # fmt: skip
    # Two neighbours take 10 + 14 + 10, all three 10 + 14 + 14 + 10.
    text = reason(instance)
    assert "node 1 and node 2 cannot all be served by 1 vehicle within a max_length of 30" in text
    assert text.endswith("with 3 vehicles (--vehicles 3) or with a max_length of 48 (18 more)")


def test_answers_of_anything_are_counted():
    """A model that uses too many routes raises; otherwise no analysis is run."""
    instance = dataclasses.replace(PACKED, demand=np.array([0.0, 4, 4, 4, 4, 2]))

    def drive(*routes: tuple[int, ...]) -> Answer:
        with explained(instance, limit=20.0):
            return accept(instance, Answer(routes, "greedy"))

    assert drive((1, 2, 5), (3, 4)).solver == "greedy"
    with pytest.raises(
        NoSolutionError, match=r"2 vehicles, got 3 by greedy; .* use --solver pyvrp"
    ):
        drive((1, 2), (3, 4), (5,))


@pytest.mark.parametrize("problem", ["tsp", "op"])
def test_one_vehicle_drives_one_tour(problem: str):
    """A limit that changes nothing: with one tour, or without mandatory customers."""
    prizes = {"prizes": np.ones(6), "max_length": 15.0} if problem == "op" else {}
    costs, labels = EdgeCosts.of_points(POINTS), tuple("012345")
    instance = BenchmarkInstance(
        "tour", problem, costs, POINTS, vehicles=1, labels=labels, **prizes
    )
    solver = BySolver("insertion")
    with explained(instance, limit=None):
        assert len(accept(instance, solver(instance)).solution) == 1
