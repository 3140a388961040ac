"""People's own instances: JSON and CSV, and what is said about wrong ones."""

from __future__ import annotations

import json

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl4co.core.errors import FileFormatError, InvalidInstanceError, InvalidSolutionError
from rl4co.data.formats import BenchmarkInstance, find_instances, read_instance
from rl4co.data.formats.custom import ARRAYS, SETTINGS
from rl4co.data.formats.custom_csv import COLUMNS
from rl4co.envs import get_env

Write = Callable[[str, Any], Path]

SQUARE = [[0, 0], [0, 3], [4, 3], [4, 0], [2, 2]]
MATRIX = [[0, 1, 2], [3, 0, 4], [5, 6, 0]]
DEMAND = {"demand": [0, 2, 3, 2, 1], "capacity": 5}
WINDOWS = {"time_windows": [[0, 100]] * 5, "service_times": [0, 1, 1, 1, 1]}

#: Problem → what is given besides coordinates.
PROBLEMS: dict[str, dict[str, Any]] = {
    "tsp": {},
    "cvrp": DEMAND,
    "cvrptw": {**DEMAND, **WINDOWS},
    "mtvrp": {**DEMAND, "max_length": 30},
    "op": {"prizes": [0, 1, 2, 3, 4], "max_length": 10},
    "pdp": {"pairs": [[2, 1], [3, 4]]},
}

CSV = """\
# capacity: 5
# a remark: that is skipped
node,x,y,demand,ready_time,due_time,service_time
depot,0,0,0,0,100,0
a,0,3,2,0,10,1
b,4,3,3,5,20,1
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes text, or an object as JSON, and gives the path."""

    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


def accepted(instance: BenchmarkInstance) -> None:
    for normalize in (False, True):
        get_env(instance.problem).reset(instance.to_tensordict(normalize))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_what_is_given_decides_the_problem(write: Write, problem: str):
    """Without naming it; the environment accepts it."""
    instance = read_instance(write("a.json", {"coordinates": SQUARE, **PROBLEMS[problem]}))
    assert (instance.problem, instance.name) == (problem, "a")
    accepted(instance)


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"backhaul_demand": [0, 0, 0, 0, 5]}, "mtvrp"),
        ({"open_routes": True}, "mtvrp"),
        ({"open_routes": False}, "cvrp"),
        ({"problem": "mtvrp"}, "mtvrp"),
    ],
)
def test_features_of_the_multi_task_problem(write: Write, extra: dict[str, Any], problem: str):
    """Any of them makes it one."""
    instance = read_instance(write("a.json", {"coordinates": SQUARE, **DEMAND, **extra}))
    assert instance.problem == problem
    accepted(instance)


def test_a_matrix_goes_from_row_to_column(write: Write):
    """Asymmetric costs, without coordinates."""
    instance = read_instance(write("a.json", {"cost_matrix": MATRIX}))
    assert instance.problem == "atsp" and instance.cost([0, 1, 2]) == 1 + 4 + 5
    td = instance.to_tensordict(normalize=True)
    assert td["cost_matrix"].max() == 1 and instance.scale == 6
    accepted(instance)


def test_travel_times_may_differ_from_costs(write: Write):
    """Both matrices reach the environment, and the check uses the right one."""
    fields = {
        "cost_matrix": MATRIX,
        "duration_matrix": [[0, 10, 10], [10, 0, 10], [10, 10, 0]],
        "demand": [0, 1, 1],
        "capacity": 2,
        "time_windows": [[0, 30], [0, 30], [0, 30]],
    }
    instance = read_instance(write("a.json", fields))
    assert set(instance.to_tensordict(normalize=True).keys()) >= {"cost_matrix", "duration_matrix"}
    instance.check([[1, 2]])
    assert instance.cost([[1, 2]]) == 1 + 4 + 5
    accepted(instance)
    fields["time_windows"] = [[0, 29], [0, 30], [0, 30]]
    with pytest.raises(ValueError, match="the depot at 30 after 29"):
        read_instance(write("b.json", fields)).check([[1, 2]])


def test_rounding(write: Write):
    """Exact unless given."""
    points = {"coordinates": [[0, 0], [1, 1]]}
    assert read_instance(write("a.json", points)).cost([0, 1]) == pytest.approx(8**0.5)
    assert read_instance(write("a.json", {**points, "rounding": "up"})).cost([0, 1]) == 4


def test_pairs_are_put_in_the_order_of_the_environment(write: Write):
    """Depot, pickups, deliveries; the file's numbers remain as labels, its solution is moved."""
    fields = {"coordinates": SQUARE, "pairs": [[2, 1], [3, 4]], "best_solution": [2, 1, 3, 4]}
    instance = read_instance(write("a.json", fields))
    assert instance.labels == ("0", "2", "3", "1", "4")
    assert instance.coordinates.tolist() == [[0, 0], [4, 3], [4, 0], [0, 3], [2, 2]]
    assert instance.best_solution == ((1, 3, 2, 4),)
    assert instance.best_known == pytest.approx(5 + 4 + 5 + 2 * 8**0.5)


def test_best_known_value_and_solution(write: Write):
    """In the file itself; a wrong solution is rejected when it is asked for."""
    fields = {
        "coordinates": SQUARE,
        **DEMAND,
        "best_known": 25.5,
        "best_solution": [[1, 2], [3, 4]],
    }
    instance = read_instance(write("a.json", fields))
    assert instance.best_known == 25.5 and instance.best_solution == ((1, 2), (3, 4))
    fields["best_solution"] = [[1, 2, 3], [4]]
    wrong = read_instance(write("b.json", fields))
    with pytest.raises(
        FileFormatError, match=r"b\.json: .* no load exceeds the capacity, got route 1"
    ):
        _ = wrong.best_solution


def test_vehicles_limit_routes(write: Write):
    """In the check of solutions, and for solvers; another number may be asked for."""
    file = write("a.json", {"coordinates": SQUARE, **DEMAND, "vehicles": 2, "nodes": [*"dabcw"]})
    instance = read_instance(file)
    assert instance.solver_options == {"max_vehicles": 2}
    instance.check([[1, 2], [3, 4]])
    with pytest.raises(InvalidSolutionError, match=r"vehicles is at most 2 .3 routes"):
        instance.check([[1, 2], [3], [4]])
    with pytest.raises(InvalidSolutionError, match="customer w is missing"):
        instance.check([[1, 2], [3]])
    assert read_instance(file, vehicles=3).vehicles == 3
    file.with_suffix(".sol").write_text("Route #1: 1 2\nRoute #2: 3 4\n")
    assert read_instance(file, vehicles=2).best_solution == ((1, 2), (3, 4))
    assert read_instance(file, vehicles=1).best_known is None  # that is of another problem


#: What is changed in an instance of all kinds of limits → why no vehicle can serve customer b.
IMPOSSIBLE: dict[str, tuple[dict[str, Any], str]] = {
    "demand": ({"demand": [0, 1, 7, 1, 1]}, "demand 7 above the capacity 5 of every vehicle"),
    "backhaul": ({"backhaul_demand": [0, 0, 6, 0, 0]}, "backhaul_demand 6 above the capacity 5"),
    "negative demand": ({"demand": [0, 1, -1, 1, 1]}, "demand -1 below 0"),
    "negative service": ({"service_times": [0, 0, -2, 0, 0]}, "service time -2 below 0"),
    "empty window": (
        {"time_windows": [[0, 50], [0, 50], [9, 8], [0, 50], [0, 50]]},
        "the time window ends at 8, before it begins at 9",
    ),
    "too far": (
        {"time_windows": [[1, 50], [0, 50], [0, 5], [0, 50], [0, 50]]},
        "the depot opens at",
    ),
    "too long": ({"service_times": [0, 0, 41, 0, 0]}, "a vehicle is back at 51 at the earliest"),
    "too far away": ({"max_length": 9}, "a route of its own is 10 long, above the max_length 9"),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_customers_that_no_vehicle_can_serve(write: Write, name: str):
    """Named with the rule in the units of the file, before anything is solved."""
    change, reason = IMPOSSIBLE[name]
    limits = {"time_windows": [[0, 50]] * 5, "service_times": [0] * 5, "max_length": 20}
    fields = {"coordinates": SQUARE, "nodes": [*"dabcw"], **DEMAND, **limits}
    get_env("mtvrp").reset(read_instance(write("a.json", fields)).to_tensordict(normalize=False))
    instance = read_instance(write("b.json", {**fields, **change}))
    with pytest.raises(InvalidInstanceError) as caught:
        instance.to_tensordict(normalize=True)
    assert "b.json: expected customers that a vehicle can serve, got customer b" in str(
        caught.value
    )
    assert reason in str(caught.value)


def test_csv(write: Write):
    """Columns by name, settings in remarks."""
    instance = read_instance(write("towns.csv", CSV))
    assert (instance.name, instance.problem, instance.capacity) == ("towns", "cvrptw", 5)
    assert instance.labels == ("depot", "a", "b")
    assert instance.coordinates.tolist() == [[0, 0], [0, 3], [4, 3]]
    assert instance.time_windows.tolist() == [[0, 100], [0, 10], [5, 20]]
    assert instance.demand.tolist() == [0, 2, 3]
    accepted(instance)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_separators(write: Write, separator: str):
    """Spreadsheets differ."""
    instance = read_instance(write("a.csv", CSV.replace(",", separator)))
    assert instance.demand.tolist() == [0, 2, 3]


def test_columns_in_any_order_and_without_names_of_nodes(write: Write):
    """Nodes are numbered then."""
    instance = read_instance(write("a.csv", "y,x\n1,2\n3,4\n"))
    assert instance.coordinates.tolist() == [[2, 1], [4, 3]] and instance.labels == ("0", "1")


def test_pickups_in_csv(write: Write):
    """The column `delivery` names the partner."""
    text = "node,x,y,delivery\nhome,0,0,\np,1,0,q\nq,2,0,\n"
    instance = read_instance(write("a.csv", text))
    assert instance.problem == "pdp" and instance.labels == ("home", "p", "q")


def test_matrix_in_csv(write: Write):
    """Numbers without names."""
    instance = read_instance(write("a.csv", "# name: costs\n0,1,2\n3,0,4\n5,6,0\n"))
    assert (instance.name, instance.problem) == ("costs", "atsp")
    assert instance.cost([0, 1, 2]) == 10


JSON_FAULTS: dict[str, tuple[Any, str]] = {
    "no JSON": ("{'a': 1}", "line 1: expected JSON"),
    "truncated": ('{"coordinates": [[0, 0], [1', "expected JSON"),
    "a list": ([1, 2], "expected an object"),
    "key twice": ('{"capacity": 5, "capacity": 50}', "the key 'capacity' twice"),
    "matrix of names": (
        {"cost_matrix": {"a": {"b": 1}, "b": {"a": 1}}},
        "cost_matrix: expected a list with one entry per node, .* under nodes",
    ),
    "nothing": ({}, r"expected coordinates, .* cost_matrix, got the keys \[\]"),
    "misspelt key": ({"coordinats": SQUARE}, "got 'coordinats'; did you mean 'coordinates'"),
    "key of another library": ({"coordinates": SQUARE, "zzz": 1}, "'zzz'; correct or remove it"),
    "uneven rows": ({"coordinates": [[0, 0], [1]]}, "coordinates: "),
    "three columns": ({"coordinates": [[0, 0, 0], [1, 1, 1]]}, "coordinates: "),
    "words": ({"coordinates": [["a", 0], [1, 1]]}, "coordinates: "),
    "infinity": ('{"coordinates": [[0, Infinity], [1, 1]]}', "coordinates: "),
    "matrix not square": ({"cost_matrix": [[0, 1], [1, 0], [2, 2]]}, "cost_matrix: "),
    "no demand of the depot": (
        {"coordinates": SQUARE, "demand": [1, 1, 1, 1], "capacity": 3},
        "demand: ",
    ),
    "no capacity": ({"coordinates": SQUARE, "demand": [0, 1, 1, 1, 1]}, "got no capacity"),
    "capacity as text": ({"coordinates": SQUARE, **DEMAND, "capacity": "5"}, "capacity: "),
    "capacity as boolean": ({"coordinates": SQUARE, **DEMAND, "capacity": True}, "capacity: "),
    "windows without demand": ({"coordinates": SQUARE, **WINDOWS}, "got no demand, capacity"),
    "unknown problem": ({"coordinates": SQUARE, "problem": "vrptw"}, "problem: "),
    "unknown rounding": ({"coordinates": SQUARE, "rounding": "floor"}, "rounding: "),
    "node in no pair": ({"coordinates": SQUARE, "pairs": [[1, 2]]}, "pairs: "),
    "node in two pairs": ({"coordinates": SQUARE, "pairs": [[1, 2], [1, 3]]}, "pairs: "),
    "capacity without demand": ({"coordinates": SQUARE, "capacity": 5}, "capacity: "),
    "service without windows": (
        {"coordinates": SQUARE, **DEMAND, "service_times": [0, 1, 1, 1, 1]},
        "service_times: ",
    ),
    "windows of a problem without": (
        {"coordinates": SQUARE, **DEMAND, "time_windows": [[0, 9]] * 5, "problem": "cvrp"},
        "problem: ",
    ),
    "no vehicle": ({"coordinates": SQUARE, **DEMAND, "vehicles": 0}, "at least 1 vehicle, got 0"),
    "half a vehicle": ({"coordinates": SQUARE, **DEMAND, "vehicles": 1.5}, "vehicles: "),
    "vehicles for a tour": ({"coordinates": SQUARE, "vehicles": 2}, "expected 1 vehicle.* got 2"),
    "name twice": ({"coordinates": SQUARE, "nodes": ["a", "b", "c", "d", "a"]}, "nodes: "),
    "unknown nodes": ({"coordinates": SQUARE, "best_solution": [[0, 9]]}, "best_solution: "),
}


@pytest.mark.parametrize("name", JSON_FAULTS)
def test_wrong_json(write: Write, name: str):
    """File, key, what was expected and what is there."""
    content, message = JSON_FAULTS[name]
    with pytest.raises(FileFormatError, match=message) as caught:
        read_instance(write("wrong.json", content))
    assert "wrong.json" in str(caught.value)


CSV_FAULTS = {
    "unknown column": (CSV.replace("demand", "weight"), "line 3: "),
    "setting twice": ("# capacity: 9\n" + CSV, "line 2: "),
    "neither yes nor no": ("# open_routes: perhaps\n" + CSV, "line 1, open_routes: "),
    "column twice": ("x,y,x\n1,2,3\n", "line 1: "),
    "misspelt setting": (CSV.replace("capacity", "capacty"), "line 1: .* did you mean 'capacity'"),
    "word for a number": (CSV.replace("a,0,3", "a,0,three"), "line 5, y: "),
    "empty cell": (CSV.replace("a,0,3", "a,0,"), "line 5, y: "),
    "missing cell": (CSV.replace("a,0,3", "a,3"), "line 5: "),
    "only y": ("y\n1\n2\n", r"expected shape \[N, 2\] = \[2, 2\]"),
    "no nodes": ("# capacity: 5\nx,y\n", "expected coordinates, .* cost_matrix"),
    "only remarks": ("# capacity: 5\n", "expected the names of the columns, got nothing"),
    "node twice": (CSV.replace("\nb,", "\na,"), "node: "),
    "unknown delivery": ("x,y,delivery\n0,0,\n1,1,7\n2,2,\n", "line 3, delivery: "),
    "uneven matrix": ("0,1\n2\n", "cost_matrix: "),
    "word in a matrix": ("0,1\n2,x\n", "line 2: "),
}


@pytest.mark.parametrize("name", CSV_FAULTS)
def test_wrong_csv(write: Write, name: str):
    """File, line, column."""
    text, message = CSV_FAULTS[name]
    with pytest.raises(FileFormatError, match=message) as caught:
        read_instance(write("wrong.csv", text))
    assert "wrong.csv" in str(caught.value)


def test_every_key_is_documented():
    """On the page about files."""
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text()
    for key in (*ARRAYS, *SETTINGS, *COLUMNS):
        assert f"`{key}`" in page, key


# ---------------------------------------------------------------- degrees, commas, names, limits

BERLIN, MUNICH, HAMBURG = (52.52, 13.405), (48.137, 11.575), (53.551, 9.994)


@pytest.mark.parametrize(
    "text",
    [
        "node,lat,lon\nb,52.52,13.405\nm,48.137,11.575\nh,53.551,9.994\n",
        "Node;Longitude;LATITUDE\nb;13,405;52,52\nm;11,575;48,137\nh;9,994;53,551\n",
    ],
)
def test_latitude_and_longitude(write: Write, text: str):
    """Great-circle kilometres, whatever the order of the columns; the map keeps directions."""
    instance = read_instance(write("cities.csv", text))
    # Berlin to Munich, Munich to Hamburg, Hamburg to Berlin, by an independent calculator.
    assert instance.costs[[0, 1, 2], [1, 2, 0]] == pytest.approx([504.2, 612.6, 255.3], abs=0.5)
    x, y = instance.coordinates.T
    assert x[2] < x[1] < x[0] and y[1] < y[0] < y[2]
    assert np.hypot(x[0] - x[1], y[0] - y[1]) == pytest.approx(504.2, rel=0.01)
    accepted(instance)
    same = {"lat": [52.52, 48.137, 53.551], "lng": [13.405, 11.575, 9.994], "rounding": "nearest"}
    assert read_instance(write("cities.json", same)).cost([0, 1, 2]) == 504 + 612 + 255


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"lat": [52, 48]}, "lat"),
        ({"lat": [52, 48], "lon": [13, 12], "coordinates": [[0, 0], [1, 1]]}, "lat"),
        ({"lat": [113.4, 111.6], "lon": [52.5, 48.1]}, "lat 113.4"),
        ({"lat": [52, 48], "lon": [13]}, "lon"),
    ],
)
def test_wrong_degrees(write: Write, fields: dict[str, Any], key: str):
    """One of the two, other places besides, swapped ones."""
    with pytest.raises(FileFormatError, match=key):
        read_instance(write("a.json", fields))


@pytest.mark.parametrize(
    ("points", "warns"),
    [
        ([BERLIN, MUNICH, HAMBURG], True),
        ([(13.405, 52.52), (11.575, 48.137)], True),
        ([(-73.985, 40.748), (-118.243, 34.052), (-87.629, 41.878)], True),
        (SQUARE, False),
        ([(0.513, 0.291), (0.201, 0.775), (0.02, 0.9)], False),
        ([(512.25, 130.75), (480.35, 111.55)], False),
        ([(52, 13), (48, 11), (53, 9)], False),
    ],
)
def test_degrees_called_x_and_y(
    write: Write, recwarn: pytest.WarningsRecorder, points: Any, warns: bool
):
    """A warning says that distances are Euclidean."""
    read_instance(write("a.json", {"coordinates": points}))
    assert [("lat" in str(w.message)) for w in recwarn] == ([True] if warns else [])


def test_decimal_commas(write: Write):
    """Where columns are not separated by commas."""
    text = "# capacity: 5,5\nnode;x;y;demand\nd;0;0;0\na;1,5;2,5;3\n".replace("5,5", "5.5")
    instance = read_instance(write("a.csv", text))
    assert instance.coordinates.tolist() == [[0, 0], [1.5, 2.5]] and instance.capacity == 5.5
    assert read_instance(write("b.csv", "0;7,5\n8;0\n")).cost([0, 1]) == 15.5


MATRICES = {
    "corner": ",home,ann,bob\nhome,0,7,9\nann,8,0,4\nbob,9,5,0\n",
    "no corner": "home,ann,bob\nhome,0,7,9\nann,8,0,4\nbob,9,5,0\n",
    "first line": "home,ann,bob\n0,7,9\n8,0,4\n9,5,0\n",
    "decimal commas": ";home;ann;bob\nhome;0,0;7;9\nann;8;0;4\nbob;9;5;0\n",
}


@pytest.mark.parametrize("name", MATRICES)
def test_matrices_with_names(write: Write, name: str):
    """In the first line, and perhaps in the first column; folders find them as well."""
    file = write("a.csv", MATRICES[name])
    instance = read_instance(file)
    assert (instance.problem, instance.labels) == ("atsp", ("home", "ann", "bob"))
    assert instance.cost([0, 1, 2]) == 7 + 4 + 9
    assert find_instances(file.parent) == ([] if name == "first line" else [file])


def test_keys_in_upper_case(write: Write):
    """They are the same as in lower case."""
    fields = {"Coordinates": SQUARE, "DEMAND": DEMAND["demand"], "Capacity": 5}
    assert read_instance(write("a.json", fields)).capacity == 5
    assert read_instance(write("a.csv", CSV.replace("capacity", "CAPACITY").upper())).capacity == 5
    with pytest.raises(FileFormatError, match=r"capacity.* twice"):
        read_instance(write("b.json", {**fields, "CAPACITY": 5}))


BEYOND_LIMITS = {
    "capacities": ({"coordinates": SQUARE, **DEMAND, "capacity": [5, 6]}, "heterogeneous fleets"),
    "vehicles": ({"coordinates": SQUARE, **DEMAND, "vehicles": [{"capacity": 5}]}, "heterogeneous"),
    "fleet": ({"coordinates": SQUARE, **DEMAND, "fleet": []}, "heterogeneous"),
    "depots": ({"coordinates": SQUARE, **DEMAND, "depots": [0, 1]}, "several depots"),
    "clock": (
        {"coordinates": SQUARE, **DEMAND, "time_windows": [["08:30", "09:00"]] * 5},
        "time_windows: expected times as numbers .*08:30 is 510",
    ),
    "comma": ({"coordinates": [["1,5", 0], [1, 1]]}, "coordinates: .* got '1,5'"),
}


@pytest.mark.parametrize("name", BEYOND_LIMITS)
def test_limits_are_named(write: Write, name: str):
    """What is not supported, or what form is expected, instead of a type."""
    content, message = BEYOND_LIMITS[name]
    with pytest.raises(FileFormatError, match=message):
        read_instance(write("a.json", content))


CSV_BEYOND_LIMITS = {
    "clock": (CSV.replace("a,0,3,2,0", "a,0,3,2,08:30"), "ready_time: expected times as numbers"),
    "capacities": (CSV.replace("capacity: 5", "capacity: 5, 6"), "heterogeneous fleets"),
    "depots": ("x,y,is_depot\n0,0,1\n1,1,1\n", "several depots"),
    "both kinds of decimals": ("x;y\n1,5;2\n1;2.5\n", "line 3: expected either decimal commas"),
    "thousands": ('x,y\n1,2\n"1,234",2\n', "x: expected numbers such as 1234.5"),
    "commas for both": ("x,y\n1,2\n1,5,2,5\n", "expected 2 columns, got 4; .* semicolons"),
    "other names": (",a,b\na,0,1\nc,1,0\n", "line 3: expected 'b'"),
}


@pytest.mark.parametrize("name", CSV_BEYOND_LIMITS)
def test_limits_are_named_in_csv(write: Write, name: str):
    """Likewise, with the line and column."""
    text, message = CSV_BEYOND_LIMITS[name]
    with pytest.raises(FileFormatError, match=message):
        read_instance(write("a.csv", text))
