"""Reading instances: one tiny file per format, and one per fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rl4co.core.errors import FileFormatError, UnknownNameError, UnsupportedError
from rl4co.data.formats import BenchmarkInstance, read_best_known, read_instance
from rl4co.envs import get_env
from tests.unit.instance_texts import SOLOMON

Write = Callable[[str, str], Path]

TSP = """\
NAME : tiny
COMMENT : a square
TYPE : TSP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
EOF
"""

MATRIX = """\
NAME: matrix
TYPE: TSP
DIMENSION: 3
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: UPPER_ROW
EDGE_WEIGHT_SECTION
1 2
3
EOF
"""

VRP = """\
NAME : tiny-n4-k2
COMMENT : (by hand)
TYPE : CVRP
DIMENSION : 4
EDGE_WEIGHT_TYPE : EUC_2D
CAPACITY : 5
NODE_COORD_SECTION
 1 0 0
 2 0 3
 3 4 3
 4 4 0
DEMAND_SECTION
1 0
2 2
3 3
4 4
DEPOT_SECTION
 1
 -1
EOF
"""

OPLIB = """\
NAME : tiny
COMMENT : by hand
TYPE : OP
DIMENSION: 4
COST_LIMIT : 12
EDGE_WEIGHT_TYPE : EUC_2D
NODE_COORD_SECTION
1 0 0
2 0 3
3 4 3
4 4 0
NODE_SCORE_SECTION
1 7
2 1
3 2
4 3
DEPOT_SECTION
1
-1
EOF
"""

CHAO = "10\t1\n0 0 0\n6 0 0\n3 4 5\n3 0 2\n"

TSPPD = """\
NAME: tiny
TYPE: TSP
COMMENT: size=2
DIMENSION: 6
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT : LOWER_DIAG_ROW
EDGE_WEIGHT_SECTION
0
0 0
1 0 0
2 0 5 0
3 0 6 8 0
4 0 7 9 10 0
NODE_COORD_SECTION
+0 0 0
-0 0 0
+1 1 0
-1 2 0
+2 3 0
-2 4 0
PRECEDENCE_SECTION
+0 -0
+1 -1
+2 -2
EOF
"""

LILIM = """\
2 10 1
0 0 0 0 0 100 0 0 0
1 3 4 5 0 50 1 0 2
2 6 8 -5 0 60 1 1 0
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and gives its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def accepted(instance: BenchmarkInstance) -> None:
    """The environment accepts the instance in both units."""
    for normalize in (False, True):
        get_env(instance.problem).check_instances(instance.to_tensordict(normalize))


# ---------------------------------------------------------------- formats


def test_tsplib(write: Write):
    """A rectangle of 3 by 4."""
    instance = read_instance(write("tiny.tsp", TSP))
    assert (instance.name, instance.problem, instance.comment) == ("tiny", "tsp", "a square")
    assert instance.num_nodes == 4 and instance.labels == ("1", "2", "3", "4")
    assert instance.cost([0, 1, 2, 3]) == 14 and instance.cost([0, 2, 1, 3]) == 18
    accepted(instance)


def test_headers_may_be_untidy(write: Write):
    """No blanks before the colon, words after the type, leading zeros, CRLF, no EOF."""
    text = TSP.replace(" : ", ":").replace("TSP", "TSP (by hand)").replace("EOF\n", "")
    text = text.replace("\n2 0 3", "\n0002 0.0 3e0").replace("\n", "\r\n")
    assert read_instance(write("tiny.tsp", text)).cost([0, 1, 2, 3]) == 14


def test_nodes_may_have_any_names_and_order(write: Write):
    """Sections refer to nodes by name; the first section gives the order."""
    text = VRP.replace("2 2\n3 3\n4 4", "4 4\n2 2\n3 3")
    assert read_instance(write("a.vrp", text)).demand.tolist() == [0, 2, 3, 4]


def test_coordinates_for_display(write: Write):
    """A matrix counts; coordinates beside it are for figures."""
    text = MATRIX.replace("EOF", "DISPLAY_DATA_SECTION\n1 0 0\n2 5 0\n3 9 9\nEOF")
    instance = read_instance(write("a.tsp", text))
    assert instance.coordinates.tolist() == [[0, 0], [5, 0], [9, 9]]
    assert instance.cost([0, 1, 2]) == 6
    td = instance.to_tensordict(normalize=True)
    assert set(td.keys()) == {"locs", "cost_matrix"} and td["cost_matrix"].max() == 1
    accepted(instance)


def test_fixed_edges_are_checked_but_no_environment_knows_them(write: Write):
    """A tour without them is rejected, and so is the environment's view."""
    text = TSP.replace("NODE_COORD", "FIXED_EDGES_SECTION\n1 3\n-1\nNODE_COORD")
    instance = read_instance(write("a.tsp", text))
    instance.check([0, 2, 1, 3])
    with pytest.raises(ValueError, match="0 to 2 is missing"):
        instance.check([0, 1, 2, 3])
    with pytest.raises(UnsupportedError, match="fixed edges"):
        instance.to_tensordict(normalize=True)


def test_cvrplib(write: Write):
    """Demands in original units, or as shares of the capacity."""
    instance = read_instance(write("a.vrp", VRP))
    assert (instance.problem, instance.capacity) == ("cvrp", 5)
    assert instance.cost([[1, 2], [3]]) == 3 + 4 + 5 + 4 + 4
    raw, scaled = (instance.to_tensordict(normalize)[0] for normalize in (False, True))
    assert raw["demand"].tolist() == [2, 3, 4] and raw["vehicle_capacity"].tolist() == [5]
    assert scaled["demand"].tolist() == pytest.approx([0.4, 0.6, 0.8])
    assert scaled["capacity"].tolist() == [5] and "cost_matrix" not in scaled.keys()
    accepted(instance)


def test_another_depot_comes_first(write: Write):
    """The other nodes keep their order."""
    text = VRP.replace("DEPOT_SECTION\n 1", "DEPOT_SECTION\n 3")
    text = text.replace("1 0\n2 2\n3 3", "1 3\n2 2\n3 0")
    instance = read_instance(write("a.vrp", text))
    assert instance.labels == ("3", "1", "2", "4")
    assert instance.demand.tolist() == [0, 3, 2, 4]
    assert instance.coordinates[0].tolist() == [4, 3]
    assert instance.cost([[1]]) == 10 and instance.cost([[3]]) == 6


@pytest.mark.parametrize(
    ("name", "rounding"),
    [("tiny", "nearest"), ("Li_21", "exact"), ("Tai75a", "exact"), ("CMT1", "exact"),
     ("Golden_3", "exact"), ("Lisbon", "nearest")],
)  # fmt: skip
def test_sets_with_real_distances(write: Write, name: str, rounding: str):
    """Four sets of CVRPLIB do not round, which their files do not say."""
    instance = read_instance(write("a.vrp", VRP.replace("tiny-n4-k2", name)))
    assert instance.edge_costs.rounding.name == rounding


def test_limit_of_routes(write: Write):
    """DISTANCE is a limit on the length, which the MTVRP has."""
    instance = read_instance(write("a.vrp", VRP.replace("CAPACITY", "DISTANCE : 11.5\nCAPACITY")))
    assert (instance.problem, instance.max_length) == ("mtvrp", 11.5)
    accepted(instance)
    with pytest.raises(ValueError, match=r"route 1: length 12 of 11\.5"):
        instance.check([[1, 2], [3]])


def test_limit_with_service_times(write: Write):
    """Then DISTANCE limits the duration: the depot closes."""
    header = "DISTANCE : 20\nSERVICE_TIME : 4\nCAPACITY"
    instance = read_instance(write("a.vrp", VRP.replace("CAPACITY", header)))
    assert instance.problem == "cvrptw" and instance.max_length is None
    assert instance.service_times.tolist() == [0, 4, 4, 4]
    instance.check([[1, 2], [3]])  # 12 + 8 is 20
    later = VRP.replace("CAPACITY", header.replace("20", "19"))
    with pytest.raises(ValueError, match="the depot at 20 after 19"):
        read_instance(write("b.vrp", later)).check([[1, 2], [3]])


def test_time_windows_of_vrplib(write: Write):
    """Distances are cut off after one decimal; service times may differ."""
    sections = (
        "TIME_WINDOW_SECTION\n1 0 50\n2 0 20\n3 7 20\n4 0 50\n"
        "SERVICE_TIME_SECTION\n1 0\n2 1\n3 2\n4 3\nDEPOT"
    )
    text = VRP.replace("DEPOT", sections).replace("3 4 3", "3 1 1").replace("CVRP", "VRPTW")
    instance = read_instance(write("a.vrp", text))
    assert instance.problem == "cvrptw" and instance.service_times.tolist() == [0, 1, 2, 3]
    assert instance.costs[0, 2] == 1.4
    accepted(instance)


def test_backhauls(write: Write):
    """What is fetched comes after what is brought."""
    section = "BACKHAUL_SECTION\n1 0\n2 0\n3 0\n4 4\nDEPOT"
    text = VRP.replace("4 4\nDEPOT", f"4 0\n{section}").replace("CVRP", "VRPB")
    instance = read_instance(write("a.vrp", text))
    assert instance.problem == "mtvrp"
    instance.check([[1, 2, 3]])
    with pytest.raises(ValueError, match="linehauls come before backhauls"):
        instance.check([[3, 1, 2]])
    accepted(instance)


def test_open_routes(write: Write):
    """The way back is free."""
    instance = read_instance(write("a.vrp", VRP.replace(": CVRP", ": OVRP")))
    assert instance.problem == "mtvrp" and instance.open_routes
    assert instance.cost([[1, 2], [3]]) == 3 + 4 + 4
    assert instance.to_tensordict(normalize=False)["open_route"].tolist() == [[True]]


def test_solomon(write: Write):
    """One decimal unless told otherwise."""
    instance = read_instance(write("t101.txt", SOLOMON))
    assert (instance.name, instance.problem, instance.nominal_vehicles) == ("T101", "cvrptw", 2)
    assert instance.time_windows.tolist() == [[0, 100], [5, 20], [0, 30]]
    assert instance.service_times.tolist() == [0, 3, 4] and instance.capacity == 50
    assert instance.cost([[1, 2]]) == 1.4 + 1.4 + 2.8
    exact = read_instance(write("t101.txt", SOLOMON), rounding="exact")
    assert exact.cost([[1, 2]]) == pytest.approx(4 * 2**0.5)
    td = instance.to_tensordict(normalize=True)[0]
    assert instance.scale == 2
    assert td["time_windows"][1].tolist() == [2.5, 10] and td["durations"].tolist() == [0, 1.5, 2]
    assert td["cost_matrix"][0, 1] == pytest.approx(0.7)  # windows are met by rounded times
    accepted(instance)


def test_oplib(write: Write):
    """The depot's score belongs to every solution, but not to the environment's reward."""
    instance = read_instance(write("tiny-gen2-50.oplib", OPLIB))
    assert (instance.name, instance.problem, instance.max_length) == ("tiny-gen2-50", "op", 12)
    assert instance.objective([2, 3]) == 7 + 2 + 3
    instance.check([2, 3])
    with pytest.raises(ValueError, match="length 14 of 12"):
        instance.check([1, 2, 3])
    td = instance.to_tensordict(normalize=True)[0]
    assert td["prize"].tolist() == pytest.approx([1 / 3, 2 / 3, 1]) and td["max_length"] == 3
    accepted(instance)


def test_orienteering_from_start_to_end(write: Write):
    """Tsiligirides and Chao: the way goes from the first point to the second."""
    instance = read_instance(write("set_64_1_10.txt", CHAO))
    assert instance.num_nodes == 3 and instance.labels == ("1", "3", "4")
    assert instance.cost([1]) == 10 and instance.objective([1]) == 5
    instance.check([1])
    with pytest.raises(ValueError, match="length 12 of 10"):
        instance.check([1, 2])  # 5 + 4 + 3
    assert "cost_matrix" in instance.to_tensordict(normalize=True).keys()
    accepted(instance)


def test_pickups_and_deliveries(write: Write):
    """Depot, pickups, deliveries; the way to the end is free."""
    instance = read_instance(write("a.tsp", TSPPD))
    assert instance.problem == "pdp" and instance.labels == ("+0", "+1", "+2", "-1", "-2")
    assert instance.pairs.tolist() == [[1, 3], [2, 4]]
    assert instance.cost([1, 3, 2, 4]) == 1 + 5 + 8 + 10
    assert instance.coordinates[:, 0].tolist() == [0, 1, 3, 2, 4]
    accepted(instance)
    with pytest.raises(ValueError, match=r"customer -1 comes before customer \+1"):
        instance.check([3, 1, 2, 4])


def test_pickups_with_time_windows(write: Write):
    """No environment, but costs and checks."""
    instance = read_instance(write("a.txt", LILIM))
    assert instance.problem == "pdptw" and instance.cost([[1, 2]]) == 20
    instance.check([[1, 2]])
    with pytest.raises(ValueError, match="every pickup precedes its delivery"):
        instance.check([[2, 1]])
    with pytest.raises(ValueError, match="one route has both"):
        instance.check([[1], [2]])
    with pytest.raises(UnsupportedError, match="no environment"):
        instance.to_tensordict(normalize=False)


# ---------------------------------------------------------------- best-known values


def test_solution_beside_the_instance(write: Write):
    """The file with the same name; its cost counts, and its routes when they are asked for."""
    write("a.sol", "Route #1: 1 2\nRoute #2: 3\nCost 20\n")
    instance = read_instance(write("a.vrp", VRP))
    assert instance.best_known == 20 and instance.best_solution == ((1, 2), (3,))
    assert instance.gap(25) == 0.25 and instance.gap(20) == 0
    assert read_instance(write("b.vrp", VRP)).best_known is None
    # With another rounding it would be another value.
    assert read_instance(write("a.vrp", VRP), rounding="exact").best_known is None


def test_optimal_tour_beside_the_instance(write: Write):
    """Tours have no cost line: the tour's cost is computed."""
    write("tiny.opt.tour", "NAME: tiny\nTYPE: TOUR\nDIMENSION: 4\nTOUR_SECTION\n1 2 3 4\n-1\nEOF\n")
    instance = read_instance(write("tiny.tsp", TSP))
    assert instance.best_known == 14 and instance.best_solution == ((0, 1, 2, 3),)


def test_gap_of_a_prize_has_the_other_sign(write: Write):
    """Less is worse."""
    instance = read_instance(write("a.oplib", OPLIB), best_known=10)
    assert instance.gap(9) == pytest.approx(0.1)


def test_gap_needs_a_best_known_value(write: Write):
    """There is no default."""
    with pytest.raises(ValueError, match="solution= or best_known="):
        read_instance(write("a.vrp", VRP)).gap(1.0)


def test_table_of_best_known_values(write: Write):
    """By name of the file or of the instance; an empty cell is no value."""
    table = write("bks.csv", "set,instance,sol_cost,other\nX,a,20,1\nX,tiny-n4-k2,21,\n")
    instance = read_instance(write("a.vrp", VRP), best_known=table)
    assert instance.best_known == 20
    other = read_instance(write("b.vrp", VRP))
    assert read_best_known(table, other) == 21
    assert read_best_known(table, other, "other") is None


def test_a_table_that_does_not_list_the_instance(write: Write):
    """A warning where the instance is wanted, an error where the value is."""
    table = write("bks.csv", "instance,optimum\nz,1\n")
    with pytest.warns(UserWarning, match="tiny-n4-k2"):
        instance = read_instance(write("c.vrp", VRP), best_known=table)
    assert instance.best_known is None
    with pytest.raises(FileFormatError, match="expected a line for tiny-n4-k2, got none"):
        read_best_known(table, instance)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance,value\na,1\n", "a column best_known or bks"),
        ("what,optimum\na,1\n", "a column instance or path or name or file"),
        ("instance,optimum\na,one\n", "line 2, optimum: expected numbers, got 'one'"),
    ],
)
def test_wrong_tables(write: Write, text: str, message: str):
    """The message says which column or line."""
    with pytest.raises(FileFormatError, match=message):
        read_instance(write("a.vrp", VRP), best_known=write("bks.csv", text))


# ---------------------------------------------------------------- faults

FAULTS = {
    # TSPLIB
    "no precedences": (TSPPD, TSPPD[TSPPD.index("PREC") :], "", "expected a PRECEDENCE_SECTION"),
    "truncated coordinates": (TSP, "4 4 0\nEOF\n", "", r"NODE_COORD_SECTION"),
    "no section": (TSP, TSP[TSP.index("NODE") :], "", "expected a NODE_COORD_SECTION, got none"),
    "half a line": (TSP, "4 4 0\nEOF\n", "4 4", r"line 10, NODE_COORD_SECTION"),
    "larger dimension": (TSP, "DIMENSION : 4", "DIMENSION : 5", "expected 5 nodes,.* got 4"),
    "smaller dimension": (TSP, "DIMENSION : 4", "DIMENSION : 3", "expected 3 nodes,.* got 4"),
    "no dimension": (TSP, "DIMENSION : 4\n", "", "expected a line 'DIMENSION : ...', got none"),
    "dimension as text": (TSP, "DIMENSION : 4", "DIMENSION : four", r"line 4, DIMENSION"),
    "dimension as fraction": (TSP, "DIMENSION : 4", "DIMENSION : 4.5", "whole number, got '4.5'"),
    "type of distance": (TSP, "EUC_2D", "EUC_4D", r"line 5, EDGE_WEIGHT_TYPE"),
    "no type of distance": (TSP, "EDGE_WEIGHT_TYPE : EUC_2D\n", "", "EDGE_WEIGHT_TYPE"),
    "word for a number": (TSP, "3 4 3", "3 4 three", r"line 9, NODE_COORD_SECTION"),
    "underscore": (TSP, "3 4 3", "3 4 1_0", "expected numbers, got '1_0'"),
    "not a number": (TSP, "3 4 3", "3 4 nan", "expected finite numbers, got 'nan'"),
    "node twice": (TSP, "3 4 3", "2 4 3", "expected every node once, got node 2 twice"),
    "problem": (TSP, "TYPE : TSP", "TYPE : SOP", r"line 3, TYPE"),
    "tour": (TSP, "TYPE : TSP", "TYPE : TOUR", "read solutions with read_solution"),
    "section of another problem": (TSP, "EOF", "DEMAND_SECTION\n1 1\nEOF", r"line 11"),
    "section twice": (TSP, "EOF", "NODE_COORD_SECTION\nEOF", "a second NODE_COORD_SECTION"),
    "prose": (TSP, "TYPE : TSP", "this is a letter", r"line 3"),
    "fixed edge": (TSP, "EOF", "FIXED_EDGES_SECTION\n1 9\n-1\nEOF", "FIXED_EDGES_SECTION"),
    "matrix too short": (MATRIX, "\n3\n", "\n", "line 6, EDGE_WEIGHT_SECTION"),
    "matrix too long": (MATRIX, "\n3\n", "\n3 4\n", "got 4"),
    "form of the matrix": (MATRIX, "UPPER_ROW", "SPIRAL", r"EDGE_WEIGHT_FORMAT"),
    "no form of the matrix": (MATRIX, "EDGE_WEIGHT_FORMAT: UPPER_ROW\n", "", "EDGE_WEIGHT_FORMAT"),
    # CVRPLIB
    "no depot": (VRP, "DEPOT_SECTION\n 1\n -1\n", "", "expected a DEPOT_SECTION, got none"),
    "empty list of depots": (VRP, " 1\n -1\n", " -1\n", r"DEPOT_SECTION"),
    "two depots": (VRP, " 1\n -1\n", " 1\n 2\n -1\n", r"one depot, got 2 \(1 2\); .*not sup"),
    "unknown depot": (VRP, " 1\n -1\n", " 9\n -1\n", r"line 18, DEPOT_SECTION"),
    "no capacity": (VRP, "CAPACITY : 5\n", "", "CAPACITY"),
    "two capacities": (VRP, "CAPACITY : 5", "CAPACITY : 5 6", "CAPACITY: .* heterogeneous fleets"),
    "depots in the type": (VRP, "TYPE : CVRP", "TYPE : MDVRP", "TYPE: .*several depots"),
    "fleet in the type": (VRP, "TYPE : CVRP", "TYPE : HFVRP", "TYPE: .*heterogeneous fleets"),
    "capacity of 0": (VRP, "CAPACITY : 5", "CAPACITY : 0", "expected a positive capacity, got 0"),
    "demand missing": (VRP, "4 4\nDEPOT", "DEPOT", r"DEMAND_SECTION"),
    "demand of an unknown node": (VRP, "\n4 4\nDEPOT", "\n7 4\nDEPOT", "got node 7"),
    "demand of the depot": (VRP, "\n1 0\n2 2", "\n1 5\n2 2", "without demand, got 5 for node 1"),
    "no demands": (
        VRP,
        VRP[VRP.index("DEMAND") : VRP.index("DEPOT")],
        "",
        "expected a DEMAND_SECTION",
    ),
    # Solomon
    "no customers": (SOLOMON, SOLOMON[SOLOMON.index("CUSTOMER") :], "", "CUSTOMER, got none"),
    "no vehicles": (SOLOMON, "  2          50\n", "", "VEHICLE: expected the number of vehicles"),
    "nothing after the heading": (
        SOLOMON,
        SOLOMON[SOLOMON.index("    0 ") :],
        "",
        "expected a depot and customers, got 0 lines",
    ),
    "columns": (SOLOMON, "30    4", "30", r"line 12, CUSTOMER"),
    "numbering": (SOLOMON, "    2      2", "    3      2", "expected node 2, got node 3"),
    # OPLib
    "no scores": (
        OPLIB,
        OPLIB[OPLIB.index("NODE_SCORE") : OPLIB.index("DEPOT")],
        "",
        "expected a NODE_SCORE_SECTION",
    ),
    "no limit": (OPLIB, "COST_LIMIT : 12\n", "", "COST_LIMIT"),
    # Tsiligirides and Chao
    "team": (CHAO, "10\t1", "10\t3", "line 1"),
    "score missing": (CHAO, "3 0 2\n", "3 0\n", "line 5"),
    "no points": (CHAO, "3 4 5\n3 0 2\n", "", "expected a start, an end and other points, got 2"),
    # TSPPDLIB
    "no depot pair": (TSPPD, "+0 -0\n+1", "+0 -1\n+1", "expected every node in one pair"),
    "unknown partner": (TSPPD, "+2 -2\nEOF", "+2 -7\nEOF", r"line 24, PRECEDENCE_SECTION"),
    "other depot": (TSPPD, "+0 -0\n+1 -1\n", "+1 -0\n+0 -1\n", r"expected the pair '\+0 -0' of"),
    # Li and Lim
    "no partner": (LILIM, "1 1 0\n", "1 0 0\n", "line 3"),
    "columns of Li and Lim": (LILIM, "60 1 1 0", "60 1 1", "expected 9 numbers, got 8|TSPLIB"),
    "numbering of Li and Lim": (LILIM, "\n2 6 8", "\n5 6 8", "line 4"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named(write: Write, name: str):
    """File, line or section, what was expected, what is there, and what to do."""
    text, old, new, message = FAULTS[name]
    assert old in text
    with pytest.raises(FileFormatError, match=message) as caught:
        read_instance(write("wrong.txt", text.replace(old, new, 1)))
    assert "wrong.txt" in str(caught.value) and "; " in str(caught.value)


#: With coordinates; a matrix that is complete is a complete TSP.
POINTS = TSPPD.replace(TSPPD[TSPPD.index("EXPLICIT") : TSPPD.index("NODE_COORD")], "EUC_2D\n")


@pytest.mark.parametrize("text", [TSP, VRP, SOLOMON, OPLIB, POINTS, LILIM, MATRIX, CHAO])
def test_every_truncation_is_an_error_or_harmless(write: Write, text: str):
    """Cut anywhere, a file is rejected, or what is missing said nothing (the end mark, digits)."""
    whole = read_instance(write("whole.txt", text))
    for end in range(len(text)):
        try:
            part = read_instance(write("part.txt", text[:end]))
        except FileFormatError:
            continue
        # CHAO's and Solomon's formats do not say how many nodes there are; their tables may be cut.
        assert part.num_nodes <= whole.num_nodes
        if "DIMENSION" in text:
            assert part.num_nodes == whole.num_nodes and end > len(text) - 24


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"  \n\n", "an empty file"),
        (b"\x00\x01\x02", "binary data"),
        (b"hello world\n", "TSPLIB .*, got a file that begins with 'hello world'"),
        (b"Route #1: 1 2\nCost 3\n", "a solution is read with read_solution"),
        (b"\x80\x04\x95\x00.", "binary data"),
    ],
)
def test_foreign_files(tmp_path: Path, content: bytes, message: str):
    """What is no instance is rejected without being run."""
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=message):
        read_instance(path)


def test_latin_1(tmp_path: Path):
    """Names of authors in old files are not UTF-8."""
    path = tmp_path / "old.tsp"
    path.write_bytes(TSP.replace("a square", "Grötschel").encode("latin-1"))
    assert read_instance(path).comment == "Grötschel"


def test_missing_file(tmp_path: Path):
    """As for any file."""
    with pytest.raises(FileNotFoundError, match="check the path"):
        read_instance(tmp_path / "none.tsp")
    path = tmp_path / "a.vrp"
    path.write_text(VRP)
    with pytest.raises(FileNotFoundError, match="check the path"):
        read_instance(path, solution=tmp_path / "none.sol")


def test_unknown_rounding(write: Write):
    """With the names that there are."""
    with pytest.raises(UnknownNameError, match="nearest"):
        read_instance(write("a.vrp", VRP), rounding="neerest")


def test_arrays_are_float64(write: Write):
    """Original numbers keep all their digits."""
    instance = read_instance(write("a.tsp", TSP.replace("4 4 0", "4 4.123456789012 0")))
    assert instance.coordinates.dtype == np.float64
    assert instance.coordinates[3, 0] == 4.123456789012
