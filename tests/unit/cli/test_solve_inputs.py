"""`rl4co solve` in real processes: packed files and standard input, tables without a line, what is
no file at all, and all errors that are raised before solving starts."""

from __future__ import annotations

import gzip
import os
import socket

from pathlib import Path

import pytest

from rl4co.core.errors import FileFormatError
from rl4co.data.formats import find_instances, read_instance
from rl4co.data.size_limit import VARIABLE
from tests.commands import Commands
from tests.unit.instance_texts import FJS, JSP, TSP, VRP

NEAREST = ("--solver", "nearest_neighbor")

# Linehauls 1 and 2, backhauls 3 and 4 (nodes 4 and 5 of the file), whose demands are fetched.
LKH_VRPB = VRP.replace("TYPE : CVRP", "TYPE : VRPB").replace("EUC_2D", "EXACT_2D")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with an instance."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.vrp").write_text(VRP)


# ---------------------------------------------------------------- before time is spent


def test_errors_before_solving(command: Commands):
    """One line, long before a solver would end; the folder stays as it was."""
    os.mkfifo("pipe.sol")
    before = sorted(Path().iterdir())
    for arguments, message in (
        (["--best-known", "0"], "finite best-known value other than 0, got 0"),
        (["--best-known", "nan"], "finite best-known value other than 0, got nan"),
        (["--best-known", "inf"], "finite best-known value other than 0, got inf"),
        (["--best-known=-inf"], "finite best-known value other than 0, got -inf"),
        (["--out", "/proc/new.sol"], "expected to write /proc/new.sol"),
        (["--render", "/proc/new.png"], "expected to write /proc/new.png"),
        (["--out", "/proc/new/"], "expected to write /proc/new/tiny.sol"),
        (["--out", f"{'x' * 300}.sol"], "name too long"),
        (["--out", "pipe.sol"], "got a device or pipe pipe.sol"),
        (["--render", "tiny.vrp/x.png"], "got the file"),
        (["--lkh-executable", "LKH"], "--solver lkh or --polish-solver lkh"),
    ):
        result = command("solve", "tiny.vrp", *arguments, "--max-runtime", "100")
        assert result.code == 2, result
        assert message.lower() in result.stderr.lower() and result.stderr.count("\n") == 1
        assert result.seconds < 50
    assert sorted(Path().iterdir()) == before


def test_tables_of_best_known_values(command: Commands):
    """The gap to 0 is undefined; a missing line warns; solution files beside instances count."""
    Path("bks.csv").write_text("instance,bks\ntiny,0\n")
    table = ("solve", "tiny.vrp", *NEAREST, "--best-known", "bks.csv")
    zero = command(*table)
    assert zero.code == 0 and "undefined" in zero.stdout
    assert command(*table, "--json").json["results"][0]["gap"] is None
    Path("bks.csv").write_text("instance,bks\nother,3\n")
    missing = command(*table)
    assert missing.code == 0, missing
    assert missing.stderr.startswith("warning: bks.csv: ") and "tiny" in missing.stderr
    Path("tiny.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    assert command(*table, "--json").json["results"][0]["best_known"] == 32


def test_a_seed_for_a_deterministic_solver(command: Commands):
    """It makes no difference, and does no harm."""
    routes = [
        command("solve", "tiny.vrp", "--solver", solver, "--seed", seed, "--json").json["results"][
            0
        ]["routes"]
        for solver, seed in (("nearest_neighbor", 1), ("random", 1), ("random", 2))
    ]
    assert routes[0] and routes[1] != routes[2]


# ---------------------------------------------------------------- packed files, standard input


def test_packed_files(command: Commands):
    """Names, formats and solutions are those of the unpacked file; folders have them, too."""
    for name, text in (("tiny.vrp", VRP), ("shop.FJS", FJS), ("own.csv", "0,7,9\n8,0,4\n9,5,0\n")):
        with gzip.open(f"{name}.gz", "wt") as file:
            file.write(text)
    Path("tiny.vrp").unlink()
    Path("tiny.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    names = [path.name for path in find_instances(".")]
    assert names == ["own.csv.gz", "shop.FJS.gz", "tiny.vrp.gz"]
    places = ("--out", "solved", "--render", "drawn")
    records = command("solve", ".", "--solver", "random", *places, "--json").json["results"]
    assert [record["problem"] for record in records] == ["atsp", "fjsp", "cvrp"]
    assert [record["name"] for record in records] == ["own", "shop", "tiny"]
    assert records[2]["best_known"] == 32
    assert sorted(path.name for path in Path("solved").iterdir()) == [
        "own.tour", "shop.json", "tiny.sol",
    ]  # fmt: skip
    assert (Path("drawn") / "tiny.png").is_file()


def test_damaged_and_huge_packed_files(command: Commands, monkeypatch: pytest.MonkeyPatch):
    """One line; what would decompress to more than the limit is not decompressed."""
    packed = gzip.compress(VRP.encode())
    Path("cut.vrp.gz").write_bytes(packed[:-9])
    result = command("solve", "cut.vrp.gz", *NEAREST)
    assert result.code == 2 and "expected a complete gzip file" in result.stderr
    monkeypatch.setenv(VARIABLE, str(len(packed)))
    Path("bomb.vrp.gz").write_bytes(packed)
    with pytest.raises(FileFormatError, match=VARIABLE):
        read_instance("bomb.vrp.gz")


def test_standard_input(command: Commands):
    """`-` reads it, packed or not, in every format; a fault names it."""
    for text, problem, name in (
        (VRP.encode(), "cvrp", "tiny"),
        (gzip.compress(TSP.encode()), "tsp", "long"),
        (JSP.encode(), "jssp", "stdin"),
        (b'{"coordinates": [[0, 0], [0, 3], [4, 3]]}', "tsp", "stdin"),
        (b"# capacity: 5\nnode,x,y,demand\nhome,0,0,0\nann,0,3,2\n", "cvrp", "stdin"),
    ):
        options = ("--solver", "random", "--out", f"{problem}/", "--json")
        (record,) = command("solve", "-", *options, stdin=text).json["results"]
        assert (record["file"], record["problem"], record["name"]) == ("-", problem, name)
    assert Path("cvrp/stdin.sol").is_file()
    broken = command("solve", "-", stdin=VRP.replace("5 2 8\n", "").encode())
    assert broken.code == 2
    assert broken.stderr.startswith("standard input, line 6, NODE_COORD_SECTION: expected 5 nodes")


# ---------------------------------------------------------------- what things are called


def test_what_is_no_file_is_called_what_it_is(command: Commands):
    """Loops, links to nothing, devices, pipes and sockets."""
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("nowhere")
    os.mkfifo("pipe")
    expected = {
        "loop": "got a loop of symbolic links: loop; correct the link",
        "dangling": "got a link to nowhere, where there is none: dangling",
        "pipe": "got a pipe: pipe; give it as standard input",
        "socket": "got a socket: socket",
        "/dev/zero": "got a device: /dev/zero",
        "none.npy": "got no such file: none.npy",
        "tiny.vrp/x.vrp": "got no such file: tiny.vrp/x.vrp",
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        result = command("solve", *expected, *NEAREST, "--json")
    assert result.code == 1
    for record in result.json["results"]:
        assert f"expected a file, {expected[record['file']]}" in record["error"]["message"]
    for arguments in (["loop"], ["tiny.vrp", "--best-known", "loop"]):
        alone = command("solve", *arguments, *NEAREST)
        assert alone.code == 2 and "a loop of symbolic links" in alone.stderr


def test_negative_times_of_jobs(command: Commands):
    """In the first job, which tells that it is a job shop at all, and in another one."""
    Path("first").write_text(JSP.replace("0 3", "0 -3"))
    Path("second").write_text(JSP.replace("2 6", "2 -6"))
    result = command("solve", "first", "second", "--json")
    assert result.code == 1
    for record in result.json["results"]:
        message = record["error"]["message"]
        assert "expected processing time, a whole number from 0, got -" in message
        assert "operation 1" in message


def test_solutions_of_other_instances(command: Commands):
    """What was got is said once."""
    Path("long.tsp").write_text(TSP)
    for file, text, message in (
        ("tiny.vrp", "Route #1: 1 2\nRoute #2: 3 9\n", "all nodes are from 1 to 4, got node 9"),
        ("tiny.vrp", "Route #1: 1 2 3 4\nRoute #2: 5\n", "all nodes are from 1 to 4, got node 5"),
        ("long.tsp", "Route #1: 1 2\nRoute #2: 3 4\n", "there is one route, got 2 routes;"),
    ):
        Path("other.sol").write_text(text)
        result = command("solve", file, "--initial", "other.sol")
        assert result.code == 2 and message in result.stderr and "got got" not in result.stderr


# ---------------------------------------------------------------- backhauls


@pytest.mark.parametrize("listed", ["4\n5\n-1", "4 5 -1", "5\n4 -1", "4 5 5\n-1"])
def test_backhauls_as_lkh3_lists_them(listed: str):
    """What they demand is fetched."""
    section = f"BACKHAUL_SECTION\n{listed}\nDEPOT_SECTION"
    Path("back.vrp").write_text(LKH_VRPB.replace("DEPOT_SECTION", section))
    instance = read_instance("back.vrp")
    assert instance.problem == "mtvrp"
    assert instance.demand.tolist() == [0, 2, 3, 0, 0]
    assert instance.backhaul_demand.tolist() == [0, 0, 0, 4, 1]


def test_backhauls_are_solved(command: Commands):
    """After all deliveries of a route.

    The loads brought, 2 and 3, and fetched, 4 and 1, fill one vehicle: 1, 2, 4, 3 takes 3 + 4, the
    roots of 29 and 68, and 4.
    """
    section = "BACKHAUL_SECTION\n4 5 -1\nDEPOT_SECTION"
    Path("back.vrp").write_text(LKH_VRPB.replace("DEPOT_SECTION", section))
    Path("one.sol").write_text("Route #1: 1 2 4 3\n")
    start = ("--initial", "one.sol")
    (record,) = command("solve", "back.vrp", *start, "--json").json["results"]
    assert record["cost"] == pytest.approx(11 + 29**0.5 + 68**0.5)
    Path("one.sol").write_text("Route #1: 1 4 2 3\n")
    assert "route 1: " in command("solve", "back.vrp", *start).stderr
    (found,) = command("solve", "back.vrp", "--solver", "insertion", "--json").json["results"]
    assert sorted(node for route in found["routes"] for node in route) == [1, 2, 3, 4]
    Path("back.vrp").write_text(LKH_VRPB.replace("DEPOT_SECTION", section.replace("5", "7")))
    result = command("solve", "back.vrp")
    assert "BACKHAUL_SECTION: expected one of the nodes, got node 7" in result.stderr
