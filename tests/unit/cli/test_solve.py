"""`rl4co solve`: what it prints and writes, and one clear line for everything that is wrong."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from rl4co.data import read_instance, read_solution
from rl4co.models import AttentionModelPolicy
from rl4co.tasks.methods import SEARCHES
from tests.unit.cli.commands import run, run_json
from tests.unit.instance_texts import JSP, TSP, VRP

NEAREST = ("--solver", "nearest_neighbor")

TAILLARD = "jobs, machines, seeds, bounds\n2 2 0 0 9 9\nTimes\n1 2\n3 4\nMachines\n1 2\n2 1\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with two instances."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.vrp").write_text(VRP)
    Path("long.tsp").write_text(TSP)
    return tmp_path


def assert_rejected(message: str, *arguments: str) -> None:
    """One line on stderr and exit code 2; with --json the same as JSON."""
    plain = run(*arguments)
    assert plain.exit_code == 2, plain.output
    assert message in plain.stderr and plain.stderr.count("\n") == 1 and plain.stdout == ""
    machine = run(*arguments, "--json")
    assert machine.exit_code == 2
    assert message in json.loads(machine.stdout)["error"]["message"]


def save_policy(problem: str, folder: Path) -> str:
    policy = AttentionModelPolicy(env_name=problem, embed_dim=16, num_heads=2, num_encoder_layers=1)
    return str(policy.save_pretrained(folder / f"model-{problem}"))


# ---------------------------------------------------------------- one file


@pytest.mark.usefixtures("here")
def test_one_file():
    """Facts and routes, numbered as in solution files."""
    result = run("tiny.vrp", "--solver", "local_search", "--best-known", "25")
    assert result.exit_code == 0, result.output
    words = result.stdout.split()
    assert {"32", "25", "28.00", "local_search"} <= set(words)
    assert result.stdout.startswith("tiny (cvrp, 5 nodes)\n")
    assert sorted(line[-3:] for line in result.stdout.splitlines() if "Route" in line) in (
        [f"{a}", f"{b}"] for a in ("1 2", "2 1") for b in ("3 4", "4 3")
    )


@pytest.mark.usefixtures("here")
def test_tours_have_the_names_of_the_file():
    """TSPLIB counts from 1."""
    result = run("long.tsp", "--solver", "local_search")
    (tour,) = [line for line in result.stdout.splitlines() if line.startswith("Tour: ")]
    assert sorted(tour.split()[1:]) == ["1", "2", "3", "4", "5"]


@pytest.mark.usefixtures("here")
def test_customers_with_names():
    """Custom keys of a file are kept in the result."""
    Path("shop.csv").write_text("# capacity: 5\nnode,x,y,demand\nhome,0,0,0\nann,0,3,2\nbo,4,3,3\n")
    assert "Route #1: ann bo" in run("shop.csv", *NEAREST).stdout


@pytest.mark.usefixtures("here")
def test_json():
    """All keys, whether or not there is a value."""
    (record,) = run_json("long.tsp", "--solver", "local_search")
    assert record.pop("seconds") > 0
    assert sorted(record.pop("routes")[0]) == [0, 1, 2, 3, 4]
    assert record == {
        "file": "long.tsp", "name": "long", "problem": "tsp", "nodes": 5,
        "solver": "local_search", "cost": 680.0, "objective": 680.0, "objective_before": None,
        "best_known": None, "gap": None, "lower_bound": None, "optimal": False,
        "interrupted": False, "remarks": [],
    }  # fmt: skip


@pytest.mark.usefixtures("here")
def test_job_shops():
    """Makespan, bounds, a line for each job; written, read again, drawn."""
    Path("two").write_text(JSP)
    Path("bks.csv").write_text("instance,lb_2026,ub_2026\ntwo,11,12\n")
    rule = ("--solver", "dispatching")
    result = run("two", *rule, "--best-known", "bks.csv", "--render", "two.png")
    assert result.stdout.startswith("two (jssp, 2 jobs, 3 machines, 6 operations)\n")
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert {"makespan 12", "best known 12", "gap 0.00 %", "lower bound 11"} <= set(lines)
    assert lines[-2:] == ["Job 0: m2 0-5, m0 5-8, m1 8-12", "Job 1: m1 0-2, m2 5-11, m0 11-12"]
    assert Path("two.png").read_bytes().startswith(b"\x89PNG")
    (first,) = run_json("two", *rule, "--out", "schedule.json")
    (again,) = run_json("two", "--initial", "schedule.json", "--best-known", "schedule.json")
    assert (again["best_known"], again["gap"], again["optimal"]) == (12, 0, False)
    assert again["schedule"] == first["schedule"] and again["solver"] == "schedule.json"
    assert again["schedule"][1][1] == {"machine": 2, "start": 5, "end": 11}
    assert (again["makespan"], again["jobs"], again["machines"], again["operations"]) == (
        12, 2, 3, 6,
    )  # fmt: skip
    optimal = run("two", *rule, "--best-known", "bks.csv", "--column", "lb_2026")
    assert "gap 9.09 %" in " ".join(optimal.stdout.split())


@pytest.mark.usefixtures("here")
def test_routes_and_schedules_in_one_table():
    """A folder of both, with the usual formats of solutions."""
    Path("two").write_text(JSP)
    result = run(".", "--solver", "random", "--out", "solved")
    assert result.exit_code == 0, result.output
    assert [line.split()[:3] for line in result.stdout.splitlines()[4:7]] == [
        ["long.tsp", "tsp", "5"], ["tiny.vrp", "cvrp", "5"], ["two", "jssp", "6"],
    ]  # fmt: skip
    names = sorted(path.name for path in Path("solved").iterdir())
    assert names == ["long.tour", "tiny.sol", "two.json"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (JSP[:-4], [], "job 1, operation 2: expected machine, got the end of the file"),
        (JSP, ["--solver", "lkh"], "got 'jssp'"),
        (JSP, ["--solver", "dispatching", "--rounding", "exact"], "expected no rounding for two"),
        (JSP, ["--solver", "dispatching", "--out", "a.sol"], "suffix of a solution of jssp"),
        (JSP, ["--initial", "tiny.vrp"], "expected JSON"),
        (2 * TAILLARD, [], "expected one instance, got 2 (two_1 to two_2)"),
    ],
)
def test_bad_job_shops(text: str, arguments: list[str], message: str):
    """What was expected, what is there, and what to do."""
    Path("two").write_text(text)
    assert_rejected(message, "two", *arguments)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("given", ["32", "bks.csv", "best.sol", None])
def test_best_known(given: str | None):
    """A value, a table, a solution, or the solution beside the file."""
    text = "Route #1: 1 2\nRoute #2: 3 4\nCost 32\n"
    Path("best.sol").write_text(text)
    Path("bks.csv").write_text("instance,bks\ntiny,32\n")
    if given is None:
        Path("tiny.sol").write_text(text)
    option = () if given is None else ("--best-known", given)
    (record,) = run_json("tiny.vrp", *NEAREST, *option)
    assert record["best_known"] == 32
    assert record["gap"] == pytest.approx(record["cost"] / 32 - 1)


@pytest.mark.usefixtures("here")
def test_column_and_rounding():
    """The table's column is named; distances that are not rounded."""
    Path("bks.csv").write_text("instance,mine\ntiny,32\n")
    (record,) = run_json("tiny.vrp", *NEAREST, "--best-known", "bks.csv", "--column", "mine")
    assert record["best_known"] == 32
    (exact,) = run_json("tiny.vrp", "--solver", "local_search", "--rounding", "exact")
    assert exact["cost"] == pytest.approx(12 + 4 + 2 * 68**0.5)


def test_a_model_and_polish(here: Path):
    """Both values; the second one is the optimum of this small instance."""
    model = save_policy("cvrp", here)
    (record,) = run_json(
        "tiny.vrp", "--model", model, "--method", "sampling", "--samples", "5", "--seed", "2",
        "--polish", "1", "--polish-solver", "local_search",
    )  # fmt: skip
    assert record["solver"] == "sampling + local_search"
    assert record["objective_before"] >= record["objective"] == 32
    table = run("tiny.vrp", "--model", model, "--polish", "1", "--polish-solver", "local_search")
    assert "cost before" in table.stdout and "greedy + local_search" in table.stdout


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search(here: Path, name: str):
    """The untrained model, adapted to the instance, finds the optimum of this small one."""
    model = save_policy("cvrp", here)
    (record,) = run_json(
        "tiny.vrp", "--model", model, "--search", name, "--iterations", "5", "--seed", "2",
        "--num-augment", "4", "--max-runtime", "60",
    )  # fmt: skip
    assert (record["solver"], record["objective"]) == (name, 32)


@pytest.mark.usefixtures("here")
def test_a_solution_from_a_file_is_priced():
    """Without any search."""
    Path("mine.sol").write_text("Route #1: 1 4\nRoute #2: 2\nRoute #3: 3\n")
    (record,) = run_json("tiny.vrp", "--initial", "mine.sol")
    assert (record["cost"], record["solver"]) == (34, "mine.sol")


# ---------------------------------------------------------------- files that are written


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("file", "out"), [("tiny.vrp", "a/b.sol"), ("tiny.vrp", "c.json"), ("long.tsp", "d.tour")]
)
def test_out_and_render(file: str, out: str):
    """The saved solution can be read again; the rendering is a PNG file."""
    (record,) = run_json(file, *NEAREST, "--out", out, "--render", "figure.png")
    instance = read_instance(file)
    assert instance.cost(read_solution(out, instance).routes) == record["cost"]
    assert Path("figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("here")
def test_folders_of_results():
    """One file for each instance, named after it; the kind of problem decides on the format."""
    assert run(".", *NEAREST, "--out", "solved", "--render", "drawn").exit_code == 0
    assert sorted(path.name for path in Path("solved").iterdir()) == ["long.tour", "tiny.sol"]
    assert sorted(path.name for path in Path("drawn").iterdir()) == ["long.png", "tiny.png"]


# ---------------------------------------------------------------- several files


@pytest.mark.usefixtures("here")
def test_several_files_and_a_broken_one():
    """A row for each; the reason for the one that failed; exit code 1."""
    Path("broken.vrp").write_text(VRP.replace("5 2 8\n", ""))
    result = run("tiny.vrp", "broken.vrp", "long.tsp", *NEAREST, "--procs", "2")
    assert result.exit_code == 1
    assert result.stdout.startswith("3 files\n")
    rows = result.stdout.splitlines()
    assert [row.split()[0] for row in rows if ".vrp " in row or ".tsp " in row] == [
        "tiny.vrp", "broken.vrp", "long.tsp",
    ]  # fmt: skip
    assert "NODE_COORD_SECTION" in result.stdout
    machine = run("tiny.vrp", "broken.vrp", *NEAREST, "--json")
    first, second = json.loads(machine.stdout)["results"]
    assert machine.exit_code == 1
    assert first["problem"] == "cvrp" and second["error"]["type"] == "FileFormatError"


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (VRP[:100], "NODE_COORD_SECTION: expected"),
        ("", ": expected an instance or a solution, got an empty file"),
        (VRP.replace("EUC_2D", "EUC_7D"), "'EUC_7D'"),
        (VRP.replace("DIMENSION : 5", "DIMENSION : 6"), "NODE_COORD_SECTION: expected 6"),
        (VRP.replace("DEPOT_SECTION\n1\n-1\n", ""), "DEPOT_SECTION"),
        ("once upon a time", "'once upon a time'"),
    ],
    ids=["truncated", "empty", "edge weight type", "dimension", "depot", "foreign"],
)
def test_bad_files(here: Path, text: str, message: str):
    """What was expected, what is there, and what to do."""
    (here / "bad.vrp").write_text(text)
    assert_rejected(message, "bad.vrp")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.vrp"], "no such file: none.vrp"),
        (["tiny.vrp", "--solver", "pyvpr"], "did you mean 'pyvrp'"),
        (["tiny.vrp", "--solver", "lkh"], "LKH cannot solve this cvrp instance"),
        (["tiny.vrp", "--max-runtime", "0"], "positive number of seconds, got 0"),
        (["tiny.vrp", "--max-runtime", "-3"], "positive number of seconds, got -3"),
        (["tiny.vrp", "--polish", "0", *NEAREST], "positive number of seconds, got 0"),
        (["tiny.vrp", "--polish-solver", "lkh"], "--polish SECONDS"),
        (["tiny.vrp", "--polish", "1", "--polish-solver", "insertion", *NEAREST], "insertion"),
        (["tiny.vrp", "--procs", "0", *NEAREST], "num_procs"),
        (["tiny.vrp", "--animate", "a.gif"], "--model alone with --animate"),
        (
            ["tiny.vrp", "--model", "m", "--animate", "a.gif", "--polish", "1"],
            "--animate or --polish",
        ),
        (["tiny.vrp", "--model", "m", "--animate", "a.mp4"], ".gif or .html"),
        (["tiny.vrp", "--method", "greedy"], "--model with --method"),
        (["tiny.vrp", "--top-k", "3"], "--model with --top-k"),
        (["tiny.vrp", "--model", "m", "--method", "gredy"], "mean 'greedy'"),
        (["tiny.vrp", "--model", "m", "--solver", "lkh"], "--solver and --model"),
        (["tiny.vrp", "--model", "m", "--max-runtime", "1"], "only for a solver"),
        (["tiny.vrp", "--search", "eas_lay"], "--model with --search"),
        (["tiny.vrp", "--model", "m", "--search", "eas"], "'eas_lay'"),
        (["tiny.vrp", "--model", "m", "--iterations", "3"], "--search with --iterations"),
        (
            ["tiny.vrp", "--model", "m", "--search", "eas_lay", "--top-k", "3"],
            "--search or --top-k",
        ),
        (["tiny.vrp", "--model", "nowhere"], "no pretrained model, folder or checkpoint 'nowhere'"),
        (["tiny.vrp", "--initial", "nowhere.sol"], "nowhere.sol"),
        (["tiny.vrp", "--rounding", "sideways", *NEAREST], "sideways"),
        (["tiny.vrp", "--best-known", "nowhere.csv", *NEAREST], "nowhere.csv"),
        (["tiny.vrp", "long.tsp", "--best-known", "3"], "a table as --best-known of 2 files"),
        (["tiny.vrp", "--out", "x.tour"], "known: .json, .sol"),
        (["tiny.vrp", "--out", "x.docx"], "suffix of a solution"),
        (["tiny.vrp", "--out", "tiny.vrp/x.sol"], "got the file"),
        (["tiny.vrp", "--render", "x.docx"], "'x.docx'"),
        (["tiny.vrp", "long.tsp", "--out", "x.sol"], "expected a folder as --out"),
        (["tiny.vrp", "tiny.vrp", "--out", "folder"], "different names"),
    ],
)
def test_bad_options(arguments: list[str], message: str):
    """Before time is spent."""
    assert_rejected(message, *arguments)


def test_a_model_of_another_problem(here: Path):
    """One line with both problems."""
    model = save_policy("tsp", here)
    assert_rejected("expected an instance of tsp, got one of cvrp", "tiny.vrp", "--model", model)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("solver", ["pyvrp", "ortools"])
def test_a_solver_that_is_not_installed(solver: str, monkeypatch: pytest.MonkeyPatch):
    """The line to install it."""
    monkeypatch.setattr(f"rl4co.solvers.{solver}.find_spec", lambda _: None)
    assert_rejected("pip install 'rl4co[solvers]'", "tiny.vrp", "--solver", solver)


@pytest.mark.usefixtures("here")
def test_solutions_that_break_a_constraint():
    """As a start, and as the best-known one; beside the file they are ignored."""
    Path("wrong.sol").write_text("Route #1: 1 2 1\nRoute #2: 3 4\nCost 32\n")
    for options in (("--initial",), (*NEAREST, "--best-known")):
        assert_rejected("no node is visited twice", "tiny.vrp", *options, "wrong.sol")
    Path("wrong.sol").rename("tiny.sol")
    (record,) = run_json("tiny.vrp", *NEAREST)
    assert record["best_known"] is None and record["cost"] > 0


@pytest.mark.usefixtures("here")
def test_earlier_results_are_no_references():
    """A solution that an earlier run wrote beside a file, which has changed since."""
    run_json("tiny.vrp", *NEAREST, "--out", "tiny.sol")
    text = Path("tiny.vrp").read_text()
    for old, new in (("5 2 8\n", "5 9 9\n"), ("CAPACITY : 5", "CAPACITY : 4")):
        assert old in text
        Path("tiny.vrp").write_text(text.replace(old, new))
        (record,) = run_json("tiny.vrp", *NEAREST)
        assert record["best_known"] is None and record["cost"] > 0


@pytest.mark.usefixtures("here")
def test_the_limit_on_the_input_can_be_changed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RL4CO_MAX_INPUT", "10")
    assert_rejected("RL4CO_MAX_INPUT", "tiny.vrp", *NEAREST)
    assert_rejected("RL4CO_MAX_INPUT", "tiny.vrp", *NEAREST, "--max-input-size", "large")
    assert_rejected("RL4CO_MAX_INPUT", "tiny.vrp", *NEAREST)
    assert run("tiny.vrp", *NEAREST, "--max-input-size", "1MB").exit_code == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("out", ["in.json", "./in.json", "link.json"])
def test_the_instance_is_not_overwritten(out: str):
    text = json.dumps({"coordinates": [[0, 0], [3, 4], [6, 0]]})
    Path("in.json").write_text(text)
    Path("link.json").symlink_to("in.json")
    assert_rejected("--out", "in.json", *NEAREST, "--out", out)
    assert Path("in.json").read_text() == text


@pytest.mark.usefixtures("here")
def test_a_best_known_solution_is_not_overwritten():
    run_json("tiny.vrp", *NEAREST, "--out", "best.sol")
    text = Path("best.sol").read_text()
    options = ("--best-known", "best.sol", "--out", "best.sol")
    assert_rejected("best.sol, which is read", "tiny.vrp", *NEAREST, *options)
    assert Path("best.sol").read_text() == text
