"""Every public routing instance is read; every published solution is valid at its published cost.

The environments judge: `check_solution_validity` on the instance in original units, and their
reward, must agree with the published value to its last digit. Exceptions are faults of the data
that its documentation names; each is listed here, and must still be there.
"""

from __future__ import annotations

import csv
import functools
import random

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4co.core.errors import UnsupportedError
from rl4co.data.formats import BenchmarkInstance, read_instance, read_solution
from rl4co.envs import get_env

#: Solutions that break a constraint: a customer is listed twice, and another one is missing.
BROKEN = {"B-n50-k8", "XML100_1371_11", "XML100_2271_25", "XML100_3371_07"}
#: Solutions whose cost line is the optimum, while their routes cost this much.
DEARER = {"B-n57-k7": 1155.0, "E-n30-k3": 537.0}
#: Scores of solutions that were made with other prizes than those in the instances.
OTHER_PRIZES = {
    f"{name}-gen3-50": score
    for name, score in {
        "a280": 7720, "rat195": 6141, "rat575": 19857, "rat783": 26762, "tsp225": 7584,
    }.items()
}  # fmt: skip
#: Real-valued costs of sums over hundreds of edges, published with noise in the last two digits.
NOISY = ("golden_", "li_", "tai385")
NOISE = 1e-8

#: Folders of CVRPLIB; those that are not there are skipped, as are single files.
SETS = ("A", "B", "E", "F", "M", "P", "X", "XML100", "Golden", "Li", "Taillard")


@functools.cache
def environment(problem: str) -> Any:
    return get_env(problem)


@functools.cache
def table(path: Path, key: str) -> dict[str, dict[str, str]]:
    with path.open() as file:
        return {row[key]: row for row in csv.DictReader(file)}


@pytest.fixture
def data(shared_dir: Path) -> Path:
    if not (shared_dir / "data").is_dir():
        pytest.skip("no benchmark instances in the shared folder")
    return shared_dir / "data"


def files(folder: Path, pattern: str) -> list[Path]:
    """Files of a set; a set that was left out altogether is skipped."""
    found = sorted(folder.glob(pattern))
    if not found:
        pytest.skip(f"no files {pattern} in {folder.name}")
    return found


def environment_value(instance: BenchmarkInstance, routes: Any) -> float:
    """The objective by the environment, which has to accept instance and solution."""
    env = environment(instance.problem)
    actions = instance.to_actions(routes)
    assert instance.from_actions(actions) == routes
    td = env.reset(instance.to_tensordict(normalize=False))
    env.check_solution_validity(td, actions)
    reward = float(env.get_reward(td, actions, check_solution=False))
    return -reward if instance.prizes is None else reward + float(instance.prizes[0])


def assert_published(instance: BenchmarkInstance, routes: Any, published: str | float) -> None:
    """The solution is valid, and its value rounds to the digits that are published."""
    instance.check(routes)
    value = instance.objective(routes)
    if instance.edge_costs.decimals == 0:
        assert value == float(published), instance.name
    else:
        decimals = len(str(published).partition(".")[2])
        noise = NOISE * value if instance.name.lower().startswith(NOISY) else 1e-9
        assert abs(value - float(published)) <= 0.5 * 10**-decimals + noise, instance.name
    assert environment_value(instance, routes) == pytest.approx(value, rel=1e-12), instance.name


def assert_usable(instance: BenchmarkInstance) -> None:
    """The environment accepts the instance scaled for policies."""
    td = instance.to_tensordict(normalize=True)
    environment(instance.problem).check_instances(td)
    if "locs" in td.keys():
        assert float(td["locs"].min()) >= 0 and float(td["locs"].max()) <= 1


# ---------------------------------------------------------------- CVRP, VRPB


@pytest.mark.parametrize("folder", SETS)
def test_cvrplib(data: Path, folder: str):
    """CVRPLIB; Li's have a limit on routes, and are those of the MTVRP."""
    best = table(data / "cvrplib" / "bks.csv", "instance")
    for file in files(data / "cvrplib" / folder, "*.vrp"):
        instance = read_instance(file)
        row = best[file.stem]
        assert instance.problem == ("mtvrp" if row["max_distance"] else "cvrp")
        assert instance.num_nodes == int(row["customers"]) + 1
        assert instance.capacity == float(row["capacity"])
        assert_usable(instance)
        if file.stem in BROKEN:
            with pytest.warns(UserWarning, match="visited twice"):
                assert instance.best_known is None
            continue
        assert instance.best_known == float(row["sol_cost"])
        if file.stem in DEARER:
            assert_published(instance, instance.best_solution, DEARER[file.stem])
        else:
            assert len(instance.best_solution or ()) == int(row["routes_in_sol"])
            assert_published(instance, instance.best_solution, row["sol_cost"])


def test_backhauls(data: Path):
    """VRPB of Queiroga et al. (2020)."""
    for file in files(data / "vrpb", "*.vrp"):
        instance = read_instance(file)
        assert instance.problem == "mtvrp" and instance.backhaul_demand is not None
        assert_usable(instance)
        assert_published(instance, instance.best_solution, instance.best_known or 0.0)


# ---------------------------------------------------------------- TSP, ATSP


def tsp_files(data: Path, part: int, parts: int = 3) -> list[Path]:
    return files(data / "tsplib" / "tsp", "*.tsp")[part::parts]


@pytest.mark.parametrize("part", range(3))
def test_tsplib(data: Path, part: int):
    """TSPLIB, all types of distances and matrices, with optimal tours where there are any."""
    optima = table(data / "tsplib" / "optima.csv", "instance")
    for file in tsp_files(data, part):
        row = optima[file.stem]
        tour = data / "tsplib" / "tour" / f"{file.stem}.opt.tour"
        instance = read_instance(
            file,
            solution=tour if tour.is_file() else None,
            best_known=data / "tsplib" / "optima.csv",
        )
        assert instance.problem == "tsp" and instance.num_nodes == int(row["n"])
        assert instance.best_known == float(row["optimum"])
        if instance.fixed_edges is not None:
            with pytest.raises(UnsupportedError, match="fixed edges"):
                instance.to_tensordict(normalize=False)
            continue
        assert_usable(instance)
        if instance.best_solution is not None:
            assert_published(instance, instance.best_solution, row["optimum"])


def test_lkh_tours(data: Path):
    """Tours in the form of routes, not all of them optimal."""
    for file in files(data / "tsplib" / "lkh_sol", "*.sol"):
        problem = data / "tsplib" / "tsp" / f"{file.stem}.tsp"
        if not problem.is_file():
            continue
        instance = read_instance(problem)
        solution = read_solution(file, instance)
        assert solution.value is not None
        assert_published(instance, solution.routes, solution.value)


def test_atsp(data: Path):
    """Asymmetric matrices; there are no tours, but every tour must cost what the matrix says."""
    optima = data / "tsplib" / "optima.csv"
    for file in files(data / "tsplib" / "atsp", "*.atsp"):
        instance = read_instance(file, best_known=optima)
        assert instance.problem == "atsp" and not instance.edge_costs.is_symmetric
        assert_usable(instance)
        tour = [*range(instance.num_nodes)]
        random.Random(1).shuffle(tour)
        numbers = [
            float(word)
            for word in file.read_text().partition("EDGE_WEIGHT_SECTION")[2].split()
            if word != "EOF"
        ]
        legs = zip(tour, [*tour[1:], tour[0]], strict=True)
        cost = sum(numbers[i * instance.num_nodes + j] for i, j in legs)
        assert instance.cost(tour) == cost
        assert environment_value(instance, (tuple(tour),)) == cost
        assert instance.best_known is not None and instance.gap(cost) > 0


# ---------------------------------------------------------------- VRPTW, PDPTW


def test_solomon(data: Path):
    """Solomon's 100 customers; distances cut off after one decimal."""
    best = table(data / "vrptw" / "bks.csv", "instance")
    for file in files(data / "vrptw" / "solomon", "*.txt"):
        instance = read_instance(file)
        row = best[file.stem]
        assert instance.problem == "cvrptw" and instance.name.upper() == file.stem
        assert len(instance.best_solution or ()) == int(row["routes_in_that_sol"])
        assert_usable(instance)
        assert_published(
            instance, instance.best_solution, row["dist_min_bks(DIMACS trunc 1 decimal)"]
        )


def test_solomon_with_real_distances(data: Path):
    """The records of SINTEF: fewest vehicles first, distances not rounded."""
    best = table(data / "vrptw" / "bks.csv", "instance")
    for file in files(data / "vrptw" / "solomon_sintef_sol", "*.txt"):
        name = file.stem.partition("_")[0].upper()
        problem = data / "vrptw" / "solomon" / f"{name}.txt"
        if not problem.is_file():
            continue
        instance = read_instance(problem, rounding="exact", solution=file)
        assert len(instance.best_solution or ()) == int(best[name]["sintef_vehicles"])
        assert_published(
            instance, instance.best_solution, best[name]["sintef_distance(hierarchical obj)"]
        )


def test_homberger_200(data: Path):
    """Gehring and Homberger's 200 customers; one has its solution."""
    best = data / "vrptw" / "bks.csv"
    column = "dist_min_bks(DIMACS trunc 1 decimal)"
    for file in files(data / "vrptw" / "homberger200", "*.TXT"):
        instance = read_instance(file, best_known=best, column=column)
        assert instance.num_nodes == 201 and instance.best_known is not None
        assert_usable(instance)
        if instance.best_solution is not None:
            assert_published(instance, instance.best_solution, instance.best_known)


def test_homberger_1000(data: Path):
    """1000 customers in the form of VRPLIB."""
    for file in files(data / "vrptw" / "homberger1000", "*.vrp"):
        instance = read_instance(file)
        assert instance.problem == "cvrptw" and instance.num_nodes == 1001
        assert_usable(instance)
        assert_published(instance, instance.best_solution, instance.best_known or 0.0)


@pytest.mark.parametrize("size", ["100", "200"])
def test_pickups_with_time_windows(data: Path, size: str):
    """Li and Lim's PDPTW, for which there is no environment: judged by the instance alone."""
    best = table(data / "pdptw" / "bks.csv", "instance")
    for file in files(data / "pdptw" / size, "*.txt"):
        instance = read_instance(file)
        routes = instance.best_solution  # raises if it breaks a constraint
        assert routes is not None and len(routes) == int(best[file.stem]["vehicles_in_sol"])
        assert round(instance.cost(routes), 2) == float(best[file.stem]["distance_in_sol"])
        with pytest.raises(UnsupportedError, match="no environment"):
            instance.to_tensordict(normalize=True)


# ---------------------------------------------------------------- OP, PDP


@pytest.mark.parametrize("generation", ["gen1", "gen2", "gen3", "gen4"])
def test_oplib(data: Path, generation: str):
    """OPLib with the solutions of EA4OP."""
    folder = data / "op" / "oplib"
    scores = table(folder / "ea4op_scores.csv", "instance")
    for file in files(folder / "instances" / generation, "*.oplib"):
        solution = folder / "solutions" / "ea4op" / generation / f"{file.stem}.sol"
        instance = read_instance(file, solution=solution)
        row, routes = scores[file.stem], instance.best_solution
        assert instance.num_nodes == int(row["n"])
        assert instance.max_length == float(row["cost_limit"])
        assert instance.best_known == float(row["ea4op_score"])
        assert routes is not None and instance.cost(routes) == float(row["ea4op_cost"])
        assert_usable(instance)
        assert_published(instance, routes, OTHER_PRIZES.get(file.stem, row["ea4op_score"]))


def test_tours_that_use_up_their_limit_can_be_built(data: Path):
    """Step by step; the environment's default keeps a margin, which such tours do not."""
    folder = data / "op" / "oplib"
    env = get_env("op", length_margin=-1e-6)
    full = 0
    for file in files(folder / "instances" / "gen2", "eil*.oplib"):
        solution = folder / "solutions" / "ea4op" / "gen2" / f"{file.stem}.sol"
        instance = read_instance(file, solution=solution)
        routes = instance.best_solution
        assert routes is not None
        full += instance.cost(routes) == instance.max_length
        state = dict(env.reset(instance.to_tensordict(normalize=False)).items())
        for action in instance.to_actions(routes).unbind(-1):
            assert state["action_mask"][0, action[0]], instance.name
            state = env.advance(state, action)
        assert state["done"].all()
    assert full, "expected tours as long as allowed"


def test_start_and_end(data: Path):
    """Tsiligirides and Chao: start and end differ; the table has values, but no tours."""
    folder = data / "op" / "tsiligirides_chao"
    optima = folder / "optima.csv"
    for file in files(folder, "*/*.txt"):
        instance = read_instance(file, best_known=optima)
        row = table(optima, "file")[file.relative_to(folder).as_posix()]
        points = np.array(
            [line.split() for line in file.read_text().splitlines()[1:] if line.strip()]
        )
        xy = points[:, :2].astype(float)
        assert instance.num_nodes == len(xy) - 1 == int(row["n"]) - 1
        assert instance.max_length == float(row["Tmax"])
        assert instance.best_known == float(row["best_score"])
        assert_usable(instance)
        # The way of one stop goes from the first point to the second.
        stop = 1 + int(np.argmin(instance.costs[0, 1:] + instance.costs[1:, 0]))
        legs = np.linalg.norm(xy[stop + 1] - xy[:2], axis=-1)
        assert instance.cost([stop]) == pytest.approx(legs.sum(), rel=1e-12)
        if legs.sum() <= instance.max_length:
            assert environment_value(instance, ((stop,),)) == float(points[stop + 1, 2])


@pytest.mark.parametrize("folder", ["grubhub", "random-uniform"])
def test_pickups_and_deliveries(data: Path, folder: str):
    """TSPPDLIB; without published solutions, so a tour that serves order after order is taken."""
    for file in files(data / "tsppd" / folder, "*.tsp"):
        instance = read_instance(file)
        orders = instance.num_nodes // 2
        assert instance.problem == "pdp" and instance.num_nodes == 2 * orders + 1
        assert_usable(instance)
        tour = tuple(node for k in range(1, orders + 1) for node in (k, k + orders))
        instance.check(tour)
        assert [instance.labels[node] for node in tour[:2]] == ["+1", "-1"]
        assert environment_value(instance, (tour,)) == instance.cost(tour)
        if folder == "grubhub":  # routes are open: the way to the end is free
            assert (instance.costs[:, 0] == 0).all() and instance.costs[0].any()
        else:
            assert instance.edge_costs.is_symmetric


# ---------------------------------------------------------------- other readers


def test_vrplib_reads_the_same(data: Path):
    """Coordinates, demands and capacities by the package vrplib."""
    vrplib = pytest.importorskip("vrplib")
    chosen = [*files(data / "cvrplib", "[ABFP]/*.vrp"), *files(data / "vrpb", "*.vrp")[:3]]
    for file in chosen:
        ours, theirs = read_instance(file), vrplib.read_instance(str(file))
        np.testing.assert_array_equal(ours.coordinates, theirs["node_coord"])
        np.testing.assert_array_equal(ours.demand, theirs["demand"])
        assert ours.capacity == theirs["capacity"]
        # It neither rounds nor has all digits: a distance of 14.5 may come out below.
        exact = ours.with_rounding("exact").costs
        np.testing.assert_allclose(exact, theirs["edge_weight"], atol=1e-5)
    for file in files(data / "vrptw" / "solomon", "*.txt")[:5]:
        ours = read_instance(file)
        theirs = vrplib.read_instance(str(file), instance_format="solomon")
        np.testing.assert_array_equal(ours.time_windows, theirs["time_window"])
        np.testing.assert_array_equal(ours.service_times, theirs["service_time"])


def test_tsplib95_has_the_same_distances(data: Path):
    """Edges of small instances with coordinates, of every type of distance."""
    tsplib95 = pytest.importorskip("tsplib95")
    draw = random.Random(1)
    seen: set[str] = set()
    for file in files(data / "tsplib" / "tsp", "*.tsp"):
        if file.stat().st_size > 12_000:
            continue
        ours = read_instance(file)
        theirs = tsplib95.load(file)
        if ours.coordinates is None or theirs.edge_weight_type == "EXPLICIT":
            continue  # explicit matrices without coordinates are mis-indexed there
        seen.add(theirs.edge_weight_type)
        for _ in range(30):
            i, j = draw.sample(range(ours.num_nodes), 2)
            assert ours.costs[i, j] == theirs.get_weight(i + 1, j + 1), (file.name, i, j)
    assert {"EUC_2D", "GEO", "ATT"} <= seen
