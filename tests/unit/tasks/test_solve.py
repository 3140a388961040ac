"""Solving files: values in their own units, models that see scaled ones, starts improved."""

from __future__ import annotations

import importlib.util
import json

from pathlib import Path
from typing import Any

import pytest
import torch

from torch import nn

from rl4co.core.errors import (
    ConfigError,
    FileFormatError,
    InvalidSolutionError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.core.registry import SOLVERS
from rl4co.data import read_instance, read_solution, write_solution
from rl4co.envs import get_env
from rl4co.models import AttentionModelPolicy, L2DPolicy
from rl4co.solvers._base import Solutions
from rl4co.solvers._cancellation import CancelToken
from rl4co.tasks.solve import (
    ByFile,
    ByModel,
    BySolver,
    Failed,
    Solved,
    describe,
    list_files,
    save_plot,
    solve_file,
    solve_files,
)
from tests.unit.instance_texts import FJS, JSP, TSP, VRP


@pytest.fixture
def vrp(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.vrp"
    file.write_text(VRP)
    return file


@pytest.fixture
def tsp(tmp_path: Path) -> Path:
    file = tmp_path / "long.tsp"
    file.write_text(TSP)
    return file


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "two"
    file.write_text(JSP)
    return file


class Recorder(nn.Module):
    """Takes the actions that it is told, and keeps what it saw."""

    def __init__(self, actions: list[int]) -> None:
        super().__init__()
        self.actions = torch.tensor([actions])
        self.seen: Any = None

    def forward(self, td: Any, env: Any, **settings: Any) -> dict[str, torch.Tensor]:
        self.seen = td
        return {"actions": self.actions.expand(td.batch_size[0], -1)}


# ---------------------------------------------------------------- solvers


def test_cost_and_gap_in_original_units(vrp: Path):
    """The gap is that to the value of the solution beside the file, worse here on purpose."""
    vrp.with_suffix(".sol").write_text("Route #1: 1 2\nRoute #2: 3\nRoute #3: 4\nCost 36\n")
    result = solve_file(vrp, BySolver("insertion"), polish=BySolver("local_search"))
    assert result.value == 32 and sorted(map(sorted, result.solution)) == [[1, 2], [3, 4]]
    assert result.instance.best_known == 36
    assert result.gap == pytest.approx(-4 / 36)
    assert result.solver == "insertion + local_search" and result.seconds > 0


def test_without_a_best_known_value_there_is_no_gap(tsp: Path):
    """And no value before, if nothing was polished."""
    result = solve_file(tsp, BySolver("local_search"))
    assert (result.value, result.gap, result.start, result.start_value) == (680, None, None, None)


@pytest.mark.solvers
def test_defaults_are_those_of_the_problem(vrp: Path, tsp: Path):
    """PyVRP and LKH."""
    pytest.importorskip("pyvrp")
    pytest.importorskip("elkai")
    outcomes = solve_files([vrp, tsp], BySolver(max_runtime=0.3, seed=3), num_procs=2)
    found = [(o.solver, o.value) for o in outcomes if isinstance(o, Solved)]
    assert found == [("pyvrp", 32), ("lkh", 680)]


def test_the_limit_of_orienteering_can_be_used_up(tmp_path: Path):
    """All four corners, 14 long, which is as much as allowed; the depot's prize counts."""
    file = tmp_path / "op.json"
    corners = [[0, 0], [3, 0], [3, 4], [0, 4]]
    file.write_text(json.dumps({"coordinates": corners, "prizes": [5, 1, 1, 1], "max_length": 14}))
    result = solve_file(file, BySolver("insertion"))
    assert result.value == 8 and describe(result) == "op · prize 8"


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_no_time_is_rejected(seconds: float):
    """Before any file is read."""
    with pytest.raises(ConfigError, match="positive number of seconds"):
        BySolver(max_runtime=seconds)


def test_unknown_solvers_are_rejected_at_once():
    """With the name that was meant."""
    with pytest.raises(UnknownNameError, match="did you mean 'pyvrp'"):
        BySolver("pyvpr")


def test_there_is_an_answer_before_the_solver_is_loaded(vrp: Path, monkeypatch: pytest.MonkeyPatch):
    """Loading takes longer than the time limit if networks come with it and the machine is busy."""

    load = type(SOLVERS).__getitem__

    def load_no_glop(registry: Any, name: str) -> Any:
        if name == "glop":
            raise TimeoutError(name)
        return load(registry, name)

    approach, token = BySolver("glop"), CancelToken()
    monkeypatch.setattr(type(SOLVERS), "__getitem__", load_no_glop)
    with token.active(), pytest.raises(TimeoutError, match="glop"):
        approach(read_instance(vrp))
    monkeypatch.undo()
    assert token.incumbent is not None and token.incumbent().solver.endswith("in place of glop")


def test_problems_without_an_environment(tmp_path: Path):
    """Li and Lim's can be read, but not solved."""
    file = tmp_path / "lc1.txt"
    rows = ["2 10 1", "0 0 0 0 0 100 0 0 0", "1 0 3 4 0 50 1 0 2", "2 4 3 -4 0 90 1 1 0"]
    file.write_text("\n".join(rows).replace(" ", "\t") + "\n")
    with pytest.raises(UnsupportedError, match="no environment for pdptw"):
        solve_file(file)


# ---------------------------------------------------------------- models


def test_a_model_sees_the_unit_square_and_shares_of_the_capacity(vrp: Path):
    """One factor for both axes: 4 by 8 becomes 0.5 by 1. The cost is that of the file."""
    policy = Recorder([1, 4, 0, 2, 0, 3])
    result = solve_file(vrp, ByModel(policy, get_env("cvrp")))
    locs = policy.seen["locs"][0]
    assert locs.amax(0).tolist() == [0.5, 1.0] and locs.amin(0).tolist() == [0.0, 0.0]
    assert policy.seen["demand"][0].tolist() == pytest.approx([0.0, 0.4, 0.6, 0.8, 0.2])
    assert result.solution == ((1, 4), (2,), (3,)) and result.solver == "greedy"
    assert result.value == 3 + 5 + 8 + 10 + 8


def test_the_aspect_ratio_is_kept(tsp: Path):
    """300 by 40, anywhere, becomes 1 by 0.1333."""
    policy = Recorder([0, 1, 2, 3, 4])
    result = solve_file(tsp, ByModel(policy, get_env("tsp")))
    extent = policy.seen["locs"][0].amax(0)
    assert extent.tolist() == pytest.approx([1.0, 40 / 300])
    # 302.65 + 40 + 302.65 + 155.24 + 150, each rounded
    assert result.value == 303 + 40 + 303 + 155 + 150


def test_methods_and_their_options_are_those_of_evaluation(tsp: Path, tmp_path: Path):
    """From a folder, with a seed; wrong ones are rejected."""
    policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    folder = policy.save_pretrained(tmp_path / "model")
    options = {"samples": 20, "seed": 1}
    first = solve_file(tsp, ByModel.load(folder, "sampling", options=options))
    again = solve_file(tsp, ByModel.load(folder, "sampling", options=options))
    assert first.solution == again.solution and first.value <= 951
    with pytest.raises(UnknownNameError, match="mean 'greedy'"):
        solve_file(tsp, ByModel.load(folder, "gredy"))
    with pytest.raises(ConfigError, match="beam_width"):
        solve_file(tsp, ByModel.load(folder, "greedy", options={"beam_width": 3}))


def test_a_model_of_another_problem_is_rejected(vrp: Path):
    """With both names and the instance."""
    with pytest.raises(UnsupportedError, match=r"instance of tsp, got one of cvrp \(tiny\)"):
        solve_file(vrp, ByModel(Recorder([0]), get_env("tsp")))


def test_a_model_of_a_more_general_problem_will_do(vrp: Path, tsp: Path):
    """A CVRP is an MTVRP, a TSP is an ATSP."""
    policy = Recorder([1, 2, 0, 3, 4, 0])
    assert solve_file(vrp, ByModel(policy, get_env("mtvrp"))).value == 32
    assert policy.seen["demand_linehaul"][0].tolist() == pytest.approx([0, 0.4, 0.6, 0.8, 0.2])
    assert solve_file(tsp, ByModel(Recorder([0, 3, 1, 2, 4]), get_env("atsp"))).value == 680


def test_a_bound_that_is_not_finite_is_no_bound(vrp: Path, monkeypatch: pytest.MonkeyPatch):
    """A solver that is interrupted early knows none; JSON has no infinity."""
    solver = SOLVERS["nearest_neighbor"]

    def solve(env, instances, **options):
        actions, costs = solver(env, instances)
        return Solutions(actions, costs, torch.full_like(costs, -torch.inf))

    for name in ("name", "options", "warm_start", "reads"):
        setattr(solve, name, getattr(solver, name))
    monkeypatch.setitem(SOLVERS._entries, "nearest_neighbor", solve)
    result = solve_file(vrp, BySolver("nearest_neighbor"))
    assert result.lower_bound is None and not result.is_optimal


@pytest.mark.parametrize("solver", ["ortools", "nearest_neighbor", "sweep"])
def test_deterministic_solvers_ignore_a_seed(vrp: Path, solver: str):
    if solver == "ortools":
        pytest.importorskip("ortools")
    results = [solve_file(vrp, BySolver(solver, 0.2, seed=seed)) for seed in (1, 2)]
    assert results[0].solution == results[1].solution


# ---------------------------------------------------------------- job shops


def test_a_job_shop(shop: Path):
    """A rule of dispatching; without a solver that proves something, nothing is proven."""
    result = solve_file(shop, BySolver("dispatching"), best_known=10.0)
    assert (result.value, result.gap) == (12, pytest.approx(0.2))
    assert (result.lower_bound, result.is_optimal) == (None, False)
    assert describe(result) == "two · makespan 12 · gap 20.00 %"
    assert result.solution[0] == ((2, 0), (0, 5), (1, 8))


@pytest.mark.solvers
@pytest.mark.parametrize(("text", "problem", "makespan"), [(JSP, "jssp", 12), (FJS, "fjsp", 11)])
def test_shops_are_solved_to_optimality(tmp_path: Path, text: str, problem: str, makespan: int):
    """By default, with a proof; a bound in a table that is worse does not hide it."""
    pytest.importorskip("ortools")
    file, table = tmp_path / "two.txt", tmp_path / "bks.csv"
    file.write_text(text)
    table.write_text("instance,lb,ub\ntwo,5,20\n")
    result = solve_file(file, BySolver(max_runtime=5), best_known=table)
    assert (result.instance.problem, result.solver, result.value) == (problem, "cpsat", makespan)
    assert (result.lower_bound, result.is_optimal) == (makespan, True)
    assert result.gap == pytest.approx(makespan / 20 - 1)


@pytest.mark.solvers
def test_a_schedule_is_improved(shop: Path, tmp_path: Path):
    """From a file, in which job 1 goes first and machines wait."""
    pytest.importorskip("ortools")
    slow = (((2, 20), (0, 25), (1, 28)), ((1, 0), (2, 3), (0, 19)))
    start = write_solution(tmp_path / "slow.json", read_instance(shop), slow)
    result = solve_file(shop, ByFile(start), polish=BySolver(max_runtime=5))
    assert (result.start_value, result.value, result.start) == (32, 12, slow)
    assert (result.solver, result.is_optimal) == ("slow.json + cpsat", True)


def test_a_model_sees_a_job_shop_in_its_own_times(shop: Path):
    """Actions name jobs, or jobs and machines if the model is one of the flexible problem."""
    policy = Recorder([1, 2, 2, 1, 1, 2])
    result = solve_file(shop, ByModel(policy, get_env("jssp")))
    assert policy.seen["proc_times"][0].amax(0).tolist() == [5, 3, 4, 2, 6, 1]
    assert result.value == 12 and result.solver == "greedy"
    # 1 + job * 3 + machine
    flexible = Recorder([3, 5, 6, 1, 2, 4])
    again = solve_file(shop, ByModel(flexible, get_env("fjsp")))
    assert again.solution == result.solution and again.instance.problem == "jssp"
    with pytest.raises(UnsupportedError, match=r"instance of tsp, got one of jssp \(two\)"):
        solve_file(shop, ByModel(policy, get_env("tsp")))


@pytest.mark.parametrize("method", ["greedy", "sampling", "multistart_greedy", "beam_search"])
def test_decoding_of_job_shops(shop: Path, tmp_path: Path, method: str):
    """An untrained model: every method gives a valid schedule; two jobs leave little to choose."""
    policy = L2DPolicy(env_name="jssp", embed_dim=16, num_encoder_layers=1)
    folder = policy.save_pretrained(tmp_path / "model")
    options = {"samples": 4} if method == "sampling" else {}
    result = solve_file(shop, ByModel.load(folder, method, options=options))
    assert 12 <= result.value <= 21 and result.solver == method


def test_symmetries_of_the_plane_are_of_no_use_to_job_shops(shop: Path):
    """There are no coordinates."""
    with pytest.raises(UnsupportedError, match="use sampling or multistart"):
        solve_file(shop, ByModel(Recorder([1]), get_env("jssp"), "augment_dihedral_8"))


# ---------------------------------------------------------------- going on from a solution


def test_polish_reports_both_values(vrp: Path):
    """The start is that of the model, the result a local optimum."""
    model = ByModel(Recorder([1, 4, 0, 2, 0, 3]), get_env("cvrp"))
    result = solve_file(vrp, model, polish=BySolver("local_search", seed=5))
    assert (result.start_value, result.value) == (34, 32)
    assert result.start == ((1, 4), (2,), (3,)) and result.solver == "greedy + local_search"


@pytest.mark.solvers
@pytest.mark.parametrize(("name", "package"), [("tsp", "elkai"), ("vrp", "pyvrp")])
def test_polish_is_never_worse(
    name: str, package: str, request: pytest.FixtureRequest, tmp_path: Path
):
    """An optimal solution from a file comes back, by PyVRP and by LKH."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"no {package}")
    file = request.getfixturevalue(name)
    start = tmp_path / "start.sol"
    routes = {"tsp": "Route #1: 3 1 2 4\n", "vrp": "Route #1: 2 1\nRoute #2: 4 3\n"}[name]
    start.write_text(routes)
    result = solve_file(file, ByFile(start), polish=BySolver(max_runtime=0.2))
    assert result.value == result.start_value == {"tsp": 680, "vrp": 32}[name]
    assert result.solver.startswith("start.sol + ")


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("Route #1: 1 2\nRoute #2: 3 1\n", "no node is visited twice"),
        ("Route #1: 1 2 3\nRoute #2: 4\n", "route 1: load 9 of 5"),
        ("Route #1: 1 2\n", "node 3 .4 in the file. and 1 more is missing"),
    ],
)
def test_solutions_that_break_a_constraint(vrp: Path, routes: str, message: str):
    """Neither a start nor a reference; beside the file they are ignored."""
    wrong = vrp.with_suffix(".sol")
    wrong.write_text(f"{routes}Cost 30\n")
    with pytest.raises(FileFormatError, match=message):
        solve_file(vrp, ByFile(wrong), best_known=32.0)
    with pytest.raises(FileFormatError, match=rf"{message}.*best-known value alone"):
        solve_file(vrp, BySolver("nearest_neighbor"), solution=wrong)
    with pytest.warns(UserWarning, match=message):
        assert solve_file(vrp, BySolver("nearest_neighbor")).gap is None
    assert solve_file(vrp, BySolver("nearest_neighbor"), best_known=32.0).gap is not None


def test_an_invalid_solution_of_a_model_is_no_result(vrp: Path):
    """The environment looks first; if it does not, the instance does."""
    with pytest.raises(InvalidSolutionError):
        solve_file(vrp, ByModel(Recorder([1, 2, 3, 4, 0]), get_env("cvrp")))
    env = get_env("cvrp", check_solution=False)
    with pytest.raises(InvalidSolutionError, match="load 9 of 5"):
        solve_file(vrp, ByModel(Recorder([1, 2, 3, 0, 4]), env))


# ---------------------------------------------------------------- several files


@pytest.mark.parametrize("num_procs", [1, 3])
def test_a_failing_file_does_not_stop_the_others(
    vrp: Path, tsp: Path, tmp_path: Path, num_procs: int
):
    """Outcomes in the order of the files, errors among them."""
    broken = tmp_path / "broken.vrp"
    broken.write_text(VRP[:150])
    files = [vrp, broken, tmp_path / "none.tsp", tsp]
    outcomes = solve_files(files, BySolver("nearest_neighbor"), num_procs=num_procs)
    assert [type(outcome) for outcome in outcomes] == [Solved, Failed, Failed, Solved]
    assert [outcome.file for outcome in outcomes] == files
    assert isinstance(outcomes[1], Failed) and "broken.vrp" in str(outcomes[1].error)


def test_each_solution_is_handed_on(vrp: Path, tsp: Path):
    """If that fails, the file has failed; faults of the code are not caught."""
    seen: list[str] = []

    def then(result: Solved) -> None:
        seen.append(result.instance.name)
        if result.instance.name == "tiny":
            raise OSError("full")

    outcomes = solve_files([vrp, tsp], BySolver("nearest_neighbor"), then=then)
    assert seen == ["tiny", "long"]
    assert [type(outcome) for outcome in outcomes] == [Failed, Solved]
    with pytest.raises(ZeroDivisionError):
        solve_files([vrp], BySolver("nearest_neighbor"), then=lambda _: 1 // 0)


def test_folders(vrp: Path, tsp: Path, tmp_path: Path):
    """Instances of a folder and below it, without solutions, tables and other texts."""
    vrp.with_suffix(".sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    (tmp_path / "bks.csv").write_text("instance,best_known\ntiny,32\n")
    (tmp_path / "README.txt").write_text("Some instances.\n")
    (tmp_path / "package.json").write_text('{"name": "x"}')
    below = tmp_path / "below"
    below.mkdir()
    (below / "roads.csv").write_text("0,7,9\n8,0,4\n9,5,0\n")
    (below / "shop.csv").write_text("# capacity: 5\nnode,x,y,demand\na,0,0,0\nb,0,3,2\n")
    (below / "damaged.json").write_text('{"coordinates": [')
    names = [file.name for file in list_files([tmp_path, vrp])]
    assert names == ["damaged.json", "roads.csv", "shop.csv", "long.tsp", "tiny.vrp", "tiny.vrp"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="expected instances in the folder"):
        list_files([tmp_path / "empty"])


def test_num_procs_must_be_positive(vrp: Path):
    """As everywhere."""
    with pytest.raises(ConfigError, match="num_procs"):
        solve_files([vrp], num_procs=0)


# ---------------------------------------------------------------- what is made of a solution


def test_plot(vrp: Path, tsp: Path, shop: Path, tmp_path: Path):
    """The title has value and gap; other formats are rejected."""
    result = solve_file(vrp, BySolver("nearest_neighbor"), best_known=30.0)
    assert result.gap is not None
    assert describe(result) == f"tiny · cost {result.value:.0f} · gap {100 * result.gap:.2f} %"
    target = save_plot(result, tmp_path / "new" / "tiny.png")
    assert target.read_bytes().startswith(b"\x89PNG")
    tour = solve_file(tsp, BySolver("local_search"))
    assert "<svg" in save_plot(tour, tmp_path / "long.svg").read_text()
    gantt = solve_file(shop, BySolver("dispatching"))
    assert "machine 2" in save_plot(gantt, tmp_path / "two.svg").read_text()
    with pytest.raises(ConfigError, match=r"'tiny\.docx'"):
        save_plot(result, tmp_path / "tiny.docx")


def test_written_solutions_have_the_value_that_was_reported(vrp: Path, tmp_path: Path):
    """There and back."""
    result = solve_file(vrp, BySolver("nearest_neighbor"))
    target = write_solution(tmp_path / "out.sol", result.instance, result.solution)
    again = read_solution(target, result.instance)
    assert again.routes == result.solution and again.value == result.value
