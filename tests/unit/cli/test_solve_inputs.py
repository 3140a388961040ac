"""`rl4co solve`: packed files and standard input, tables without a line, what is no file at all,
and everything that is refused before time is spent on solving."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import socket
import subprocess
import sys

from pathlib import Path

import pytest

from rl4co.core.errors import FileFormatError
from rl4co.data.formats import content, find_instances, read_instance
from tests.unit.cli.commands import run, run_json
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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
    ],
)
def test_what_is_refused_before_solving(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
):
    """One line, and no solver has been called; nor is anything left in the folder."""

    def solve(*_: object) -> None:
        raise AssertionError("a solver was called")

    monkeypatch.setattr("rl4co.tasks.approaches.BySolver.__call__", solve)
    os.mkfifo("pipe.sol")
    before = sorted(Path().iterdir())
    result = run("tiny.vrp", *arguments)
    assert result.exit_code == 2, result.output
    assert message.lower() in result.stderr.lower() and result.stderr.count("\n") == 1
    assert sorted(Path().iterdir()) == before


def test_a_best_known_value_of_zero_in_a_table():
    """There is no gap to it, which is said, and the file is solved."""
    Path("bks.csv").write_text("instance,bks\ntiny,0\n")
    result = run("tiny.vrp", *NEAREST, "--best-known", "bks.csv")
    assert result.exit_code == 0 and "none to a best-known value of 0" in result.stdout
    assert run_json("tiny.vrp", *NEAREST, "--best-known", "bks.csv")[0]["gap"] is None


def test_a_table_without_a_line_for_the_instance():
    """A warning in one line, and the solution beside the file is still the best known."""
    Path("bks.csv").write_text("instance,bks\nother,3\n")
    result = run("tiny.vrp", *NEAREST, "--best-known", "bks.csv")
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "warning: bks.csv: expected a line for tiny, got none; the gap is unknown\n"
    )
    Path("tiny.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    (record,) = run_json("tiny.vrp", *NEAREST, "--best-known", "bks.csv")
    assert record["best_known"] == 32


def test_a_seed_for_a_solver_without_chance():
    """It makes no difference, and does no harm."""
    assert run_json("tiny.vrp", *NEAREST, "--seed", "1")[0]["seconds"] >= 0
    (one, other) = (run_json("tiny.vrp", "--solver", "random", "--seed", s)[0] for s in "12")
    assert one["routes"] != other["routes"]


# ---------------------------------------------------------------- packed files, standard input


def test_packed_files():
    """Names, formats and solutions are those of the unpacked file; folders have them, too."""
    for name, text in (("tiny.vrp", VRP), ("shop.FJS", FJS), ("own.csv", "0,7,9\n8,0,4\n9,5,0\n")):
        with gzip.open(f"{name}.gz", "wt") as file:
            file.write(text)
    Path("tiny.vrp").unlink()
    Path("tiny.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    names = [path.name for path in find_instances(".")]
    assert names == ["own.csv.gz", "shop.FJS.gz", "tiny.vrp.gz"]
    records = run_json(".", "--solver", "random", "--out", "solved", "--render", "drawn")
    assert [record["problem"] for record in records] == ["atsp", "fjsp", "cvrp"]
    assert [record["name"] for record in records] == ["own", "shop", "tiny"]
    assert records[2]["best_known"] == 32
    assert sorted(path.name for path in Path("solved").iterdir()) == [
        "own.tour", "shop.json", "tiny.sol",
    ]  # fmt: skip
    assert (Path("drawn") / "tiny.png").is_file()


def test_damaged_and_huge_packed_files(monkeypatch: pytest.MonkeyPatch):
    """One line; what would unpack to more than there is room for is not unpacked."""
    packed = gzip.compress(VRP.encode())
    Path("cut.vrp.gz").write_bytes(packed[:-9])
    result = run("cut.vrp.gz", *NEAREST)
    assert result.exit_code == 2 and "expected a complete gzip file" in result.stderr
    monkeypatch.setattr(content, "MAX_UNPACKED", 100)
    Path("bomb.vrp.gz").write_bytes(packed)
    with pytest.raises(FileFormatError, match="at most 100 bytes, got more when unpacking bomb"):
        read_instance("bomb.vrp.gz")


def test_standard_input():
    """`-` reads it, packed or not, in every format; a fault names it."""
    cases = [
        (VRP.encode(), ["--out", "here/"], "cvrp", "tiny"),
        (gzip.compress(TSP.encode()), [], "tsp", "long"),
        (JSP.encode(), [], "jssp", "stdin"),
        (b'{"coordinates": [[0, 0], [0, 3], [4, 3]]}', [], "tsp", "stdin"),
        (b"# capacity: 5\nnode,x,y,demand\nhome,0,0,0\nann,0,3,2\n", [], "cvrp", "stdin"),
    ]
    code = (
        "import io, sys, pickle\n"
        "from typer.testing import CliRunner\n"
        "from rl4co.cli import app\n"
        "from rl4co.data.formats.content import _standard_input\n"
        "for text, arguments in pickle.load(sys.stdin.buffer):\n"
        "    _standard_input.cache_clear()\n"
        "    command = ['solve', '-', '--solver', 'random', '--json', *arguments]\n"
        "    print(CliRunner().invoke(app, command, input=text).stdout, end='')\n"
    )
    # One process that is told all of them, and one that has a pipe as everybody has it.
    jobs = pickle.dumps([(text, arguments) for text, arguments, *_ in cases])
    answers = _process(["-c", code], jobs).stdout.splitlines()
    for answer, (_, _, problem, name) in zip(answers, cases, strict=True):
        (record,) = json.loads(answer)["results"]
        assert (record["file"], record["problem"], record["name"]) == ("-", problem, name)
    assert Path("here/stdin.sol").is_file()
    broken = _process(["-m", "rl4co.cli", "solve", "-"], VRP.replace("5 2 8\n", "").encode())
    assert broken.returncode == 2
    assert broken.stderr.startswith("standard input, line 6, NODE_COORD_SECTION: expected 5 nodes")


def _process(arguments: list[str], text: bytes) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([sys.executable, *arguments], input=text, capture_output=True)
    return subprocess.CompletedProcess(
        arguments, result.returncode, result.stdout.decode(), result.stderr.decode()
    )


# ---------------------------------------------------------------- what things are called


def test_what_is_no_file_is_called_what_it_is():
    """Loops, links to nothing, devices, pipes and sockets."""
    Path("loop").symlink_to("loop")
    Path("dangling").symlink_to("nowhere")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, message in (
            ("loop", "got a loop of symbolic links: loop; correct the link"),
            ("dangling", "got a link to nowhere, where there is none: dangling"),
            ("pipe", "got a pipe: pipe; give it as standard input"),
            ("socket", "got a socket: socket"),
            ("/dev/zero", "got a device: /dev/zero"),
            ("none.npy", "got no such file: none.npy"),
            ("tiny.vrp/x.vrp", "got no such file: tiny.vrp/x.vrp"),
        ):
            result = run(name, *NEAREST)
            assert result.exit_code == 2
            assert f"expected a file, {message}" in result.stderr
    result = run("tiny.vrp", *NEAREST, "--best-known", "loop")
    assert result.exit_code == 2 and "a loop of symbolic links" in result.stderr


@pytest.mark.parametrize("text", [JSP.replace("0 3", "0 -3"), JSP.replace("2 6", "2 -6")])
def test_negative_times_of_jobs(text: str):
    """In the first job, which tells that it is a job shop at all, and in another one."""
    Path("shop").write_text(text)
    result = run("shop")
    assert result.exit_code == 2
    assert "expected processing time, a whole number from 0, got -" in result.stderr
    assert "operation 1" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Route #1: 1 2\nRoute #2: 3 9\n", "all nodes are from 1 to 4, got node 9"),
        ("Route #1: 1 2 3 4\nRoute #2: 5\n", "all nodes are from 1 to 4, got node 5"),
    ],
)
def test_solutions_of_other_instances(text: str, message: str):
    """What was got is said once."""
    Path("other.sol").write_text(text)
    result = run("tiny.vrp", "--initial", "other.sol")
    assert result.exit_code == 2 and message in result.stderr and "got got" not in result.stderr


def test_several_routes_of_one_tour():
    """What was got is said once here, too."""
    Path("long.tsp").write_text(TSP)
    Path("two.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\n")
    result = run("long.tsp", "--initial", "two.sol")
    assert result.exit_code == 2 and "there is one route, got 2 routes;" in result.stderr


# ---------------------------------------------------------------- backhauls


@pytest.mark.parametrize("listed", ["4\n5\n-1", "4 5 -1", "5\n4 -1", "4 5 5\n-1"])
def test_backhauls_as_lkh3_has_them(listed: str):
    """A list of nodes; what they demand is fetched, after all deliveries of a route.

    The loads brought, 2 and 3, and fetched, 4 and 1, fill one vehicle: 1, 2, 4, 3 takes 3 + 4, the
    roots of 29 and 68, and 4.
    """
    section = f"BACKHAUL_SECTION\n{listed}\nDEPOT_SECTION"
    Path("back.vrp").write_text(LKH_VRPB.replace("DEPOT_SECTION", section))
    instance = read_instance("back.vrp")
    assert instance.problem == "mtvrp"
    assert instance.demand.tolist() == [0, 2, 3, 0, 0]
    assert instance.backhaul_demand.tolist() == [0, 0, 0, 4, 1]
    Path("one.sol").write_text("Route #1: 1 2 4 3\n")
    (record,) = run_json("back.vrp", "--initial", "one.sol")
    assert record["cost"] == pytest.approx(11 + 29**0.5 + 68**0.5)
    Path("one.sol").write_text("Route #1: 1 4 2 3\n")
    assert "route 1: " in run("back.vrp", "--initial", "one.sol").stderr
    Path("back.vrp").write_text(LKH_VRPB.replace("DEPOT_SECTION", section.replace("5", "7")))
    result = run("back.vrp")
    assert "BACKHAUL_SECTION: expected one of the nodes, got node 7" in result.stderr
