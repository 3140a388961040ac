"""Solutions: read, checked, written, and translated to actions and back."""

from __future__ import annotations

import dataclasses
import json
import warnings

from pathlib import Path

import numpy as np
import pytest
import torch

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    InvalidInstanceError,
    InvalidSolutionError,
    UnknownNameError,
)
from rl4co.data.formats import (
    BenchmarkInstance,
    EdgeCosts,
    read_instance,
    read_solution,
    write_solution,
)
from rl4co.data.formats.route_texts import WRITTEN_HERE, is_written_here
from rl4co.envs import get_env
from tests.unit.instance_texts import VRP

POINTS = np.array([[0.0, 0], [0, 3], [4, 3], [4, 0], [2, 8]])
EUCLIDEAN = EdgeCosts.of_points(POINTS, rounding="nearest")
LABELS = ("1", "2", "3", "4", "5")

TSP = BenchmarkInstance("tour", "tsp", EUCLIDEAN, POINTS, labels=LABELS)
CVRP = BenchmarkInstance(
    "routes", "cvrp", EUCLIDEAN, POINTS, np.array([0.0, 2, 3, 4, 1]), capacity=5, labels=LABELS
)
EXACT = dataclasses.replace(CVRP, edge_costs=EdgeCosts.of_points(POINTS))
CVRPTW = dataclasses.replace(
    CVRP,
    name="windows",
    problem="cvrptw",
    time_windows=np.array([[0.0, 40], [0, 10], [9, 12], [0, 40], [0, 40]]),
    service_times=np.array([0.0, 2, 2, 2, 2]),
)
MTVRP = dataclasses.replace(
    CVRP,
    name="limit",
    problem="mtvrp",
    backhaul_demand=np.array([0.0, 0, 0, 0, 0]),
    max_length=20.0,
)
OP = BenchmarkInstance(
    "prizes",
    "op",
    EUCLIDEAN,
    POINTS,
    prizes=np.array([5.0, 1, 2, 3, 4]),
    max_length=14,
    labels=LABELS,
)
PDP = BenchmarkInstance(
    "orders", "pdp", EUCLIDEAN, POINTS, pairs=np.array([[1, 3], [2, 4]]), labels=LABELS
)

#: A valid solution of each, its cost, and its actions. Distances: 0-1: 3, 1-2: 4, 2-3: 3, 0-3: 4,
#: 0-2: 5, 1-3: 5, 0-4: 8 (8.25), 1-4: 5 (5.39), 2-4: 5, 3-4: 8.
SOLUTIONS = {
    TSP: (((0, 1, 4, 2, 3),), 3 + 5 + 5 + 3 + 4, [0, 1, 4, 2, 3]),
    CVRP: (((1, 2), (3, 4)), 3 + 4 + 5 + 4 + 8 + 8, [1, 2, 0, 3, 4, 0]),
    CVRPTW: (((1, 2), (3, 4)), 32, [1, 2, 0, 3, 4, 0]),
    MTVRP: (((1, 2), (3, 4)), 32, [1, 2, 0, 3, 4, 0]),
    OP: (((1, 2, 3),), 14, [1, 2, 3, 0]),
    PDP: (((1, 2, 3, 4),), 3 + 4 + 3 + 8 + 8, [1, 2, 3, 4]),
}
INSTANCES = pytest.mark.parametrize("instance", SOLUTIONS, ids=lambda case: case.problem)


# ---------------------------------------------------------------- costs and encodings


@INSTANCES
def test_costs_and_actions(instance: BenchmarkInstance):
    """Worked out by hand; routes, nested or flat, and actions say the same."""
    routes, cost, actions = SOLUTIONS[instance]
    instance.check(routes)
    assert instance.cost(routes) == cost
    assert instance.cost(actions) == cost
    assert instance.to_actions(routes).tolist() == [actions]
    assert instance.from_actions(torch.tensor([actions])) == routes
    assert instance.from_actions([*actions, 0, 0]) == routes or not instance.layout.returns


@INSTANCES
@pytest.mark.parametrize("normalize", [False, True], ids=["original", "normalised"])
def test_the_environment_agrees(instance: BenchmarkInstance, normalize: bool):
    """It accepts instance and solution; in original units, the reward is the cost exactly."""
    routes, cost, _ = SOLUTIONS[instance]
    env = get_env(instance.problem)
    td = env.reset(instance.to_tensordict(normalize))
    reward = env.get_reward(td, instance.to_actions(routes), check_solution=True)
    if normalize:
        assert all(v.dtype == torch.float32 for v in td.values() if v.is_floating_point())
        return
    assert td["cost_matrix"].dtype == torch.float64
    expected = -cost if instance.prizes is None else 1 + 2 + 3  # the depot's 5 are not the policy's
    assert reward.tolist() == [expected]


def test_an_empty_orienteering_tour():
    """Staying at home costs nothing and earns the depot's prize."""
    assert OP.to_actions([]).tolist() == [[0]]
    assert OP.from_actions([0]) == () and OP.cost([]) == 0 and OP.objective([]) == 5
    OP.check([])


def test_routes_may_include_the_depot():
    """As people write them; several forms of numbers."""
    assert CVRP.cost([[0, 1, 2, 0], [0, 3, 4, 0]]) == 32
    assert CVRP.cost(np.array([1, 2, 0, 3, 4])) == 32
    assert CVRP.cost([torch.tensor([1, 2]), torch.tensor([3, 4])]) == 32


def test_nodes_that_do_not_exist():
    """No index from the end."""
    for node in (-1, 5):
        with pytest.raises(ConfigError, match=f"expected nodes 0 to 4 of routes, got {node}"):
            CVRP.cost([[1, node]])


def test_one_solution_at_a_time():
    """A batch of solutions has no routes."""
    with pytest.raises(ConfigError, match="pick one solution"):
        CVRP.from_actions(torch.zeros(2, 3, dtype=torch.int64))


# ---------------------------------------------------------------- the unit square


def test_the_aspect_ratio_is_kept():
    """One factor for both axes, which undoes costs: a bounding box of 4 by 8."""
    td = TSP.to_tensordict(normalize=True)
    assert td["locs"][0].tolist() == [[0, 0], [0, 0.375], [0.5, 0.375], [0.5, 0], [0.25, 1]]
    assert TSP.scale == 8 and set(td.keys()) == {"locs"}
    moved = dataclasses.replace(
        TSP, coordinates=POINTS + 100, edge_costs=EdgeCosts.of_points(POINTS + 100)
    )
    assert moved.to_tensordict(normalize=True)["locs"].equal(td["locs"])
    env = get_env("tsp")
    reward = env.get_reward(env.reset(td), torch.tensor([[0, 1, 4, 2, 3]]))
    exact = TSP.with_rounding("exact").cost([0, 1, 4, 2, 3])
    assert -float(reward) * TSP.scale == pytest.approx(exact, rel=1e-6)


def test_one_place_only():
    """Nothing to scale, nothing divided by zero."""
    points = np.full((3, 2), 7.0)
    instance = BenchmarkInstance("point", "tsp", EdgeCosts.of_points(points), points)
    assert instance.scale == 1 and not instance.to_tensordict(normalize=True)["locs"].any()


def test_limits_bring_their_matrix():
    """Whether a tour is too long is decided by rounded costs, so policies get them."""
    assert "cost_matrix" in OP.to_tensordict(normalize=True).keys()
    assert "cost_matrix" in CVRPTW.to_tensordict(normalize=True).keys()
    assert "cost_matrix" not in CVRP.to_tensordict(normalize=True).keys()


def test_the_environment_gets_copies():
    """Writing into the tensors leaves the instance as it was."""
    CVRP.to_tensordict(normalize=False)["cost_matrix"].zero_()
    CVRP.to_tensordict(normalize=False)["demand"].zero_()
    assert CVRP.costs.sum() > 0 and CVRP.demand.sum() == 10


# ---------------------------------------------------------------- rules

BROKEN = [
    (TSP, [0, 1, 2, 3], "every node is visited .node 4 .5 in the file. is missing"),
    (TSP, [0, 1, 2, 2, 4], "no node is visited twice .node 2 .3 in the file. is visited 2 times"),
    (TSP, [[0, 1], [2, 3, 4]], "there is one route .2 routes"),
    (CVRP, [[1, 2], [3]], "node 4 .5 in the file. is missing"),
    (CVRP, [[1, 2], [3, 4, 1]], "node 1 .2 in the file. is visited 2 times"),
    (CVRP, [[1, 3], [2, 4]], "no load exceeds the capacity .route 1: load 6 of 5"),
    (CVRP, [[1, 2], [3, 7]], "all nodes are from 1 to 4 .node 7"),
    (CVRPTW, [[2, 1], [3, 4]], "route 1: node 1 .2 in the file. at 15 after 10"),
    (MTVRP, [[1, 2], [3, 4]], None),
    (OP, [1, 4, 3], "length 20 of 14"),
    (OP, [[1], [3]], "there is one route"),
    (PDP, [3, 1, 2, 4], "every pickup precedes its delivery"),
    (PDP, [1, 2, 4], "node 3 .4 in the file. is missing"),
]


@pytest.mark.parametrize(("instance", "routes", "message"), BROKEN)
def test_broken_rules(instance: BenchmarkInstance, routes: list, message: str | None):
    """The instance names the rule and the place, and the environment agrees."""
    env = get_env(instance.problem)
    td = env.reset(instance.to_tensordict(normalize=False))
    actions = instance.to_actions(routes)
    if message is None:
        instance.check(routes)
        env.check_solution_validity(td, actions)
        return
    with pytest.raises(InvalidSolutionError, match=message):
        instance.check(routes)
    if not (instance.layout.single_route and len(instance.as_routes(routes)) > 1):
        with pytest.raises(InvalidSolutionError):
            env.check_solution_validity(td, actions)


def test_backhauls_and_linehauls_share_no_load():
    """Five out and five back fit into a vehicle of five, one after the other."""
    instance = dataclasses.replace(
        MTVRP,
        demand=np.array([0.0, 2, 3, 0, 0]),
        backhaul_demand=np.array([0.0, 0, 0, 4, 1]),
        max_length=None,
    )
    instance.check([[1, 2, 3, 4]])
    with pytest.raises(InvalidSolutionError, match="load 6 of 5"):
        dataclasses.replace(instance, backhaul_demand=np.array([0.0, 0, 0, 4, 2])).check(
            [[1, 2, 3, 4]]
        )


def test_tolerance():
    """None to speak of, unless it is asked for."""
    exact = dataclasses.replace(OP.with_rounding("exact"), max_length=13.9999)
    with pytest.raises(InvalidSolutionError, match=r"length 14 of 13\.9999"):
        exact.check([1, 2, 3])
    exact.check([1, 2, 3], tolerance=1e-5)


def test_shapes_of_instances_are_checked():
    """One row per node."""
    with pytest.raises(InvalidInstanceError, match=r"expected demand of shape \[5\]"):
        BenchmarkInstance("a", "cvrp", EUCLIDEAN, POINTS, np.zeros(4), capacity=5)
    with pytest.raises(UnknownNameError, match="did you mean 'cvrp'"):
        BenchmarkInstance("a", "cvpr", EUCLIDEAN, POINTS)


# ---------------------------------------------------------------- files

TOUR = "NAME: a\nTYPE: TOUR\nDIMENSION: 5\nTOUR_SECTION\n1 2\n5 3 4\n-1\nEOF\n"
SINTEF = "Instance name : x\nAuthors : y\nSolution\nRoute  1 : 1 2\nRoute  2 : 3 4\n"
OP_SOL = (
    "NAME : a\nTYPE : OP\nROUTE_SCORE : 11\nROUTE_COST : 14\n"
    "NODE_SEQUENCE_SECTION\n1\n2\n3\n4\n-1\nDEPOT_SECTION\n1\n-1\nEOF\n"
)


@pytest.mark.parametrize(
    ("instance", "text", "value"),
    [
        (CVRP, "Route #1: 1 2\nRoute #2: 3 4\nCost 32\n", 32),
        (CVRP, "Route #1: 1 2 \r\nRoute #2: 3 4\r\nCost: 32.0\r\n", 32),
        (CVRP, SINTEF, None),
        (CVRP, "Route #1: 1 2\nRoute #2:\nRoute #3: 3 4\n", None),
        (CVRP, '{"routes": [[1, 2], [3, 4]], "cost": 32}', 32),
        (TSP, TOUR, None),
        (TSP, TOUR.replace("-1\nEOF\n", ""), None),
        (TSP, "Route #1: 1 4 2 3\nCost: 20\n", 20),  # node 0 is left out
        (OP, OP_SOL, 11),
    ],
)
def test_forms_of_solutions(tmp_path: Path, instance: BenchmarkInstance, text: str, value: float):
    """Routes, tours, sequences and JSON, with and without a value."""
    path = tmp_path / "a.sol"
    path.write_text(text)
    solution = read_solution(path, instance)
    assert solution.routes == SOLUTIONS[instance][0] and solution.value == value


@pytest.mark.parametrize(
    ("instance", "text", "message"),
    [
        (CVRP, "Route #1: 1 2\nRoute #2: 3 4 1\nCost 32\n", "no node is visited twice, got node 1"),
        (
            CVRP,
            "Route #1: 1 3\nRoute #2: 2 4\n",
            "no load exceeds the capacity, got route 1: load 6",
        ),
        (
            CVRP,
            "Route #1: 1 2\n",
            "got node 3 .4 in the file. and 1 more is missing",
        ),
        (CVRP, "Route #1: 1 two\n", "line 1, Route 1: expected numbers, got 'two'"),
        (CVRP, "Route #1: 1 2.5\n", "line 1, Route 1: expected whole numbers, got '2.5'"),
        (CVRP, "Route #1: 1 2\nRoute #2: 3 4\nCost high\n", "line 3, Cost: expected numbers"),
        (CVRP, "1 2 3 4\n", "expected lines 'Route #1: ...'"),
        (CVRP, "NAME: a\nTYPE: TSP\n", "expected a TOUR_SECTION or NODE_SEQUENCE_SECTION, got"),
        (CVRP, '{"routes": 5}', "routes: expected routes as lists"),
        (CVRP, '{"tours": [[1]]}', r"got the keys \['tours'\]"),
        (CVRP, '{"routes": [[1, "2"]]}', "routes as lists of whole numbers"),
        (CVRP, '{"routes": [[1, 2], [3, 4]], "cost": "low"}', "objective: expected a number"),
        (CVRP, "{", "expected JSON"),
        (TSP, TOUR.replace("5 3 4", "5 3"), "TOUR_SECTION: expected 5 nodes, .* got 4"),
        (TSP, TOUR.replace("5 3 4", "5 3 9"), "line 6, TOUR_SECTION: expected nodes of tour, got"),
        (TSP, TOUR.replace("5 3 4", "5 3 3"), "no node is visited twice"),
        (OP, OP_SOL.replace("\n1\n2\n3\n", "\n2\n3\n"), "begins at the depot, got node 2"),
    ],
)
def test_wrong_solutions(tmp_path: Path, instance: BenchmarkInstance, text: str, message: str):
    """The message names the file, the place and the rule."""
    path = tmp_path / "wrong.sol"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_solution(path, instance)
    assert "wrong.sol" in str(caught.value)


def test_the_check_can_be_left_out(tmp_path: Path):
    """To look at a faulty solution."""
    path = tmp_path / "a.sol"
    path.write_text("Route #1: 1 1\n")
    assert read_solution(path, CVRP, check=False).routes == ((1, 1),)


@INSTANCES
@pytest.mark.parametrize("suffix", [".sol", ".json", ".tour"])
def test_what_is_written_is_read(tmp_path: Path, instance: BenchmarkInstance, suffix: str):
    """The same routes and value; nothing else is left in the folder."""
    routes, _, _ = SOLUTIONS[instance]
    path = tmp_path / "new folder" / f"a{suffix}"
    if suffix == ".tour" and instance.layout.has_depot:
        with pytest.raises(UnknownNameError, match=r"'\.tour'; .*known: \.json, \.sol"):
            write_solution(path, instance, routes)
        return
    assert write_solution(path, instance, routes) == path
    solution = read_solution(path, instance)
    assert solution.routes == routes
    assert solution.value == (None if suffix == ".tour" else instance.objective(routes))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_tour_may_begin_anywhere(tmp_path: Path):
    """A `.sol` file leaves out node 0, so the tour is turned."""
    path = write_solution(tmp_path / "a.sol", TSP, [4, 2, 3, 0, 1])
    assert path.read_text() == f"Route #1: 1 4 2 3\nCost 20\n# {WRITTEN_HERE}\n"


def test_texts(tmp_path: Path):
    """Forms that other programs read."""
    routes = [[1, 2], [3, 4]]
    sol = write_solution(tmp_path / "a.sol", CVRP, routes).read_text()
    assert sol == f"Route #1: 1 2\nRoute #2: 3 4\nCost 32\n# {WRITTEN_HERE}\n"
    exact = CVRP.with_rounding("exact")
    assert (
        f"Cost {exact.cost(routes)!r}"
        in write_solution(tmp_path / "b.sol", exact, routes).read_text()
    )
    tour = write_solution(tmp_path / "a.tour", TSP, [0, 1, 4, 2, 3]).read_text()
    assert tour.splitlines()[3:] == [
        "DIMENSION : 5", "TOUR_SECTION", "1", "2", "5", "3", "4", "-1", "EOF",
    ]  # fmt: skip
    record = json.loads(write_solution(tmp_path / "a.json", OP, [1, 2, 3]).read_text())
    assert record == {
        "name": "prizes", "problem": "op", "routes": [[1, 2, 3]], "cost": 14, "objective": 11,
    }  # fmt: skip


@INSTANCES
@pytest.mark.parametrize("suffix", [".sol", ".tour"])
def test_written_solutions_are_no_references(
    tmp_path: Path, instance: BenchmarkInstance, suffix: str
):
    """What an earlier run wrote beside a file is never its best-known solution, unless named."""
    if suffix not in instance.suffixes:
        return
    routes, _, _ = SOLUTIONS[instance]
    file = write_solution(tmp_path / f"a{suffix}", instance, routes)
    assert is_written_here(file)
    (tmp_path / "a.vrp").write_text(VRP)
    (tmp_path / "a.opt.tour").write_text("a best-known one")
    assert read_instance(tmp_path / "a.vrp").solution_file == tmp_path / "a.opt.tour"
    assert read_instance(tmp_path / "a.vrp", solution=file).solution_file == file


@pytest.mark.parametrize("text", ["Route #1: 1 2 3\nRoute #2: 4\nCost 30\n", "damaged", "\0"])
def test_a_wrong_file_beside_is_ignored(tmp_path: Path, text: str):
    """With a warning; one that the user names is an error."""
    (tmp_path / "tiny.vrp").write_text(VRP)
    wrong = tmp_path / "tiny.sol"
    wrong.write_text(text)
    instance = read_instance(tmp_path / "tiny.vrp")
    with pytest.warns(UserWarning, match=r"tiny\.sol.*ignored"):
        assert instance.best_known is None and instance.best_solution is None
    with pytest.raises(FileFormatError, match=r"tiny\.sol"):
        _ = read_instance(tmp_path / "tiny.vrp", solution=wrong).best_solution


@pytest.mark.parametrize(
    ("instance", "cost", "warns"),
    [
        (CVRP, "32", False),
        (CVRP, "31", True),
        (CVRP, "784", True),
        (EXACT, "33", False),  # 32.49, cut off or rounded up
        (EXACT, "32.49", False),
        (EXACT, "32.47", True),
    ],
)
def test_values_that_are_not_those_of_the_routes(
    tmp_path: Path, instance: BenchmarkInstance, cost: str, warns: bool
):
    """A warning, unless the value has fewer digits; what the file says still counts as known."""
    path = tmp_path / "a.sol"
    path.write_text(f"Route #1: 1 2\nRoute #2: 3 4\nCost {cost}\n")
    known = dataclasses.replace(instance, solution_file=path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert (known.best_known, known.best_solution) == (float(cost), ((1, 2), (3, 4)))
        read_solution(path, instance)
    assert len(caught) == (2 if warns else 0)
    assert all("a.sol: expected the cost of its routes, 32" in str(w.message) for w in caught)


def test_other_readers_take_them(tmp_path: Path):
    """The package vrplib reads what is written."""
    vrplib = pytest.importorskip("vrplib")
    path = write_solution(tmp_path / "a.sol", CVRP, [[1, 2], [3, 4]])
    assert vrplib.read_solution(str(path)) == {"routes": [[1, 2], [3, 4]], "cost": 32}


def test_nothing_is_written_for_a_wrong_solution(tmp_path: Path):
    """An existing file stays."""
    path = tmp_path / "a.sol"
    path.write_text("precious")
    with pytest.raises(InvalidSolutionError, match=r"node 4 \(5 in the file\) is missing"):
        write_solution(path, CVRP, [[1, 2], [3]])
    with pytest.raises(UnknownNameError, match=r"no suffix of a solution of cvrp '\.txt'"):
        write_solution(tmp_path / "a.txt", CVRP, [[1, 2], [3, 4]])
    assert path.read_text() == "precious" and len(list(tmp_path.iterdir())) == 1
