"""Benchmarks: what is read, computed, stored, resumed, compared, written and drawn."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time

from pathlib import Path

import pytest
import torch

from typer.testing import CliRunner

from rl4co.cli import app
from rl4co.cli.benchmark import _sources
from rl4co.core.errors import ConfigError, FileFormatError, RL4COError
from rl4co.data.formats import read_instance
from rl4co.data.io import save_tensordict_to_npz
from rl4co.envs import get_env
from rl4co.models import AttentionModelPolicy, L2DPolicy
from rl4co.tasks.benchmark import (
    BenchmarkSpec,
    ModelMethod,
    PassMark,
    SolverMethod,
    draw_plots,
    load_spec,
    parse_spec,
    run_benchmark,
    write_report,
)
from rl4co.tasks.benchmark.files import remarks
from rl4co.tasks.benchmark.instances import BrokenEntry, InstanceSet, find_files, load_set
from rl4co.tasks.benchmark.parse import parse_method, parse_source, parse_time
from rl4co.tasks.benchmark.plots import _curve, _groups, plot_gap_by_size, plot_gap_vs_time
from rl4co.tasks.benchmark.report import as_records, find_reference, make_report
from rl4co.tasks.benchmark.runners import Runner
from rl4co.tasks.benchmark.spec import DataSource, FileSource, GeneratedSource
from rl4co.tasks.benchmark.store import FILE, Result, open_store
from rl4co.tasks.evaluate import evaluate_policy
from tests.unit.instance_texts import FJS, JSP, VRP

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with two instances, the best-known solution of one, and things to leave out."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "tiny.vrp").write_text(VRP)
    (folder / "tiny.sol").write_text("Route #1: 1 2\nRoute #2: 3 4\nCost 32\n")
    (folder / "other.vrp").write_text(VRP.replace("5 2 8", "5 8 8").replace("tiny", "other"))
    (folder / "README.md").write_text("not an instance")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved, untrained policy."""
    torch.manual_seed(0)
    policy = AttentionModelPolicy(env_name="cvrp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    return policy.save_pretrained(tmp_path_factory.mktemp("models") / "am")


def spec_of(*methods: object, instances: list[object], **settings: object) -> BenchmarkSpec:
    return parse_spec({"methods": list(methods), "instances": instances, **settings})


def stored(folder: Path) -> list[dict]:
    """Results in the file, without its first line."""
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()[1:]]


# ---------------------------------------------------------------- specifications


@pytest.mark.parametrize(
    ("text", "seconds"), [("2s", 2.0), ("500ms", 0.5), ("1.5m", 90.0), (3, 3.0), ("4", 4.0)]
)
def test_times(text: object, seconds: float):
    """Numbers are seconds; units may be given."""
    assert parse_time(text) == seconds


def test_short_texts_say_the_same_as_mappings(files: Path, model: Path):
    """`HEAD:PART:...` for solvers, models, files and environments."""
    assert parse_method("pyvrp:2s:seed=3") == SolverMethod(
        "pyvrp", "pyvrp:2s:seed=3", 2.0, {"seed": 3}
    )
    assert parse_method(f"{model}:sampling:samples=10:passes=2:temperature=1e-1") == ModelMethod(
        str(model), "am:sampling:samples=10:passes=2:temperature=0.1", "sampling", passes=2,
        options={"samples": 10, "temperature": 0.1},
    )  # fmt: skip
    assert parse_source("cvrp:50:size=3:seed=7:capacity=40") == GeneratedSource(
        "cvrp", "cvrp5040", 3, 7, {"num_loc": 50, "capacity": 40}
    )
    assert parse_source("some/data.npz:env=tsp:limit=4") == DataSource(
        "some/data.npz", "tsp", "data", 4
    )
    assert parse_source(f"{files}:rounding=exact") == FileSource(
        (str(files),), "files", rounding="exact"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["pyvpr:1s"]}, "did you mean 'pyvrp'"),
        ({"methods": ["pyvrp:soon"]}, "a time such as 2s, 500ms or 1m, got 'soon'"),
        ({"methods": ["pyvrp:1s:2s"]}, "one time limit"),
        ({"methods": [{"solver": "pyvrp", "time_limit": -1}]}, "positive time_limit, got -1"),
        ({"methods": [{"solver": "pyvrp", "model": "x"}]}, "`solver` or `model`"),
        ({"methods": [{"solver": "pyvrp", "tiem_limit": 1}]}, "did you mean 'time_limit'"),
        ({"methods": [{"solver": 3}]}, "expected str for 'solver'"),
        ({"methods": ["insertion", "insertion"]}, "two methods called 'insertion'"),
        ({"methods": []}, "at least one method, got none"),
        ({"methods": "insertion"}, "a list under 'methods', got 'insertion'"),
        ({"methods": [{"model": "nowhere"}]}, "no pretrained model, .*'nowhere'"),
        ({"instances": ["tpsx:20"]}, None),  # neither an environment nor a file, found on reading
        ({"instances": [{"env": "tpsx"}]}, "no environment 'tpsx'"),
        ({"instances": [{"env": "tsp", "size": "ten"}]}, "expected int for 'size'"),
        ({"instances": [{"env": "tsp", "size": 0}]}, "at least 1 instance, got 0"),
        ({"instances": [{"folder": "x"}]}, "`files`, `data` or `env`"),
        ({"instances": [{"data": "x.npz"}]}, "'env' in DataSource"),
        ({"instances": []}, "at least one set of instances"),
        ({"reference": "lkh"}, r"no method \(as reference\) 'lkh'"),
        ({"time_limit": "never"}, "a time such as"),
        ({"passmark": {"cpu_mark": 0, "reference": 1}}, "positive PassMark"),
        ({"metods": []}, "did you mean 'methods'"),
    ],
)
def test_bad_specifications(change: dict, message: str | None, tmp_path: Path):
    """Each raises with the reason before anything runs, also in a file."""
    content = {"methods": ["insertion"], "instances": ["tsp:5:size=1"], **change}
    if message is None:
        with pytest.raises(FileNotFoundError, match="under 'tpsx', got none"):
            load_set(parse_spec({**content, "instances": ["tpsx"]}).instances[0])
        return
    with pytest.raises((RL4COError, FileNotFoundError), match=message):
        parse_spec(content)
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(content))
    with pytest.raises((RL4COError, FileNotFoundError), match=message):
        load_spec(path)


def test_bad_decoding(model: Path):
    """Settings of models are checked, too."""
    with pytest.raises(RL4COError, match="mean 'greedy'"):
        parse_method(f"{model}:gredy")
    with pytest.raises(RL4COError, match="did you mean 'samples'"):
        parse_method({"model": str(model), "options": {"sample": 3}})
    with pytest.raises(ConfigError, match="one pass of 'greedy'"):
        parse_method(f"{model}:greedy:passes=2")
    with pytest.raises(ConfigError, match="batch_size of at least 1, got 0"):
        parse_method(f"{model}:batch_size=0")


def test_files_of_specifications(tmp_path: Path):
    """YAML and JSON; what is no such file is told."""
    content = {"methods": ["random"], "instances": ["tsp:5:size=1"], "time_limit": "3s"}
    (tmp_path / "a.json").write_text(json.dumps(content))
    (tmp_path / "a.yaml").write_text(
        "methods: [random]\ninstances: ['tsp:5:size=1']\ntime_limit: 3s\n"
    )
    assert load_spec(tmp_path / "a.json") == load_spec(tmp_path / "a.yaml") == parse_spec(content)
    (tmp_path / "b.yaml").write_text("methods: [random\n")
    with pytest.raises(FileFormatError, match="expected YAML or JSON"):
        load_spec(tmp_path / "b.yaml")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_spec(tmp_path / "c.yaml")


def test_the_example_can_be_read():
    """Solvers and environments of the example exist."""
    spec = load_spec(REPOSITORY / "examples" / "benchmark.yaml")
    assert len(spec.methods) > 2 and len(spec.instances) > 1


def test_an_unknown_option_of_a_solver_is_rejected_at_once(tmp_path: Path):
    """And not on every instance."""
    spec = spec_of("random:sed=3", instances=["tsp:5:size=1"])
    with pytest.raises(RL4COError, match="did you mean 'seed'"):
        run_benchmark(spec, tmp_path)
    assert stored(tmp_path) == []


def test_time_budgets():
    """The specification's, else the largest that is named, else 10 s."""
    instances = ["tsp:5:size=1"]
    assert spec_of("random", instances=instances).horizon == 10.0
    assert spec_of("pyvrp:1s", "pyvrp:3s", "random", instances=instances).horizon == 3.0
    limited = spec_of("pyvrp:1s", "random", instances=instances, time_limit="5s")
    assert (limited.horizon, limited.solver_time_limit) == (5.0, 5.0)


# ---------------------------------------------------------------- instances


def test_files_in_natural_order(files: Path):
    """Instances alone, each once; `n9` comes before `n10`."""
    for name in ("n10.vrp", "n9.vrp"):
        (files / name).write_text(VRP)
    names = [path.name for path in find_files([str(files), str(files / "t*.vrp")])]
    assert names == ["n9.vrp", "n10.vrp", "other.vrp", "tiny.vrp"]


def test_generated_sets_depend_on_their_seed():
    """Same seed, same instances; also those of the paper's test set."""
    first = load_set(GeneratedSource("tsp", "a", 3, 1234, {"num_loc": 6}))
    again = load_set(GeneratedSource("tsp", "b", 2, 1234, {"num_loc": 6}))
    other = load_set(GeneratedSource("tsp", "c", 2, 4321, {"num_loc": 6}))
    marks = [[entry.fingerprint for entry in each.entries] for each in (first, again, other)]
    assert len({*marks[0]}) == 3 and not {*marks[0]} & {*marks[2]}
    expected = get_env("tsp", generator_params={"num_loc": 6}).dataset(3, phase="test").data["locs"]
    locs = torch.cat([entry.for_model("tsp")[1]["locs"] for entry in first.entries])
    assert torch.equal(locs, expected)


def test_best_known_values_may_be_missing(files: Path, tmp_path: Path):
    """A table that does not list an instance costs its reference, not its results."""
    table = tmp_path / "bks.csv"
    table.write_text("instance,best_known\nother,50\n")
    other, tiny = load_set(FileSource((str(files),), "files", best_known=str(table))).entries
    assert (other.best_known, other.note) == (50.0, None)
    assert tiny.best_known is None and "no best-known value of tiny" in tiny.note


def test_a_number_of_vehicles_is_a_limit(tmp_path: Path):
    """Solvers that can hold it do, and what breaks it has failed."""
    # One takes 3 and 2, or there are three routes.
    fields = {
        "coordinates": [[0, 0], [1, 0], [1.1, 0], [5, 0], [5, 1]],
        "demand": [0, 2, 2, 3, 3], "capacity": 5, "vehicles": 2,
    }  # fmt: skip
    (tmp_path / "packed.json").write_text(json.dumps(fields))
    spec = spec_of("insertion", "nearest_neighbor", instances=[str(tmp_path / "packed.json")])
    run_benchmark(spec, tmp_path / "out")
    held, broken = stored(tmp_path / "out")
    assert len(held["solution"]) == 2 and held["error"] is None
    assert "the number of vehicles is at most 2 (3 routes)" in broken["error"]


def test_files_of_the_same_name(tmp_path: Path):
    """They go by their paths, so that no result is taken for another."""
    for folder, text in (("edata", FJS), ("rdata", FJS.replace("2 7", "2 9"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "la01.txt").write_text(text)
    (tmp_path / "edata" / "la02.txt").write_text(FJS)
    table = tmp_path / "bks.csv"
    table.write_text("path,lb,ub\nedata/la01.txt,1,11\nrdata/la01.txt,1,13\nedata/la02.txt,,\n")
    entries = load_set(FileSource((str(tmp_path),), "hurink", best_known=str(table))).entries
    assert [(entry.name, entry.best_known) for entry in entries] == [
        ("edata/la01.txt", 11.0), ("la02", None), ("rdata/la01.txt", 13.0),
    ]  # fmt: skip


def test_every_instance_of_a_file_is_an_entry(tmp_path: Path):
    """With a name and a fingerprint of its own, and its own bounds."""
    block = "jobs, machines\n2 2 0 0 {} 9\nTimes\n1 2\n3 4\nMachines\n1 2\n2 1\n"
    (tmp_path / "tai.txt").write_text(block.format(9) + block.format(8))
    first, second = load_set(FileSource((str(tmp_path / "tai.txt"),), "tai")).entries
    assert (first.name, first.best_known) == ("tai_1", 9.0)
    assert (second.name, second.best_known) == ("tai_2", 8.0)
    assert first.fingerprint != second.fingerprint
    (tmp_path / "tai_1.txt").write_text(JSP)
    with pytest.raises(ConfigError, match="tai_1"):
        load_set(FileSource((str(tmp_path),), "tai"))


# ---------------------------------------------------------------- results


def test_values_are_in_the_units_of_the_instance(files: Path, model: Path, tmp_path: Path):
    """Solver and model alike: the sum of rounded distances of the stored routes."""
    spec = spec_of("nearest_neighbor", f"{model}:greedy", instances=[str(files)])
    report = run_benchmark(spec, tmp_path / "out")
    assert [row.error for row in report.rows] == [None] * 4
    for record in stored(tmp_path / "out"):
        instance = read_instance(files / f"{record['instance']}.vrp")
        instance.check(record["solution"])
        assert record["value"] == instance.cost(record["solution"])
        assert record["value"] == int(record["value"])
    # Nearest first: 0-1 (3), 1-2 (4), back (5), 0-3 (4), 3-4 (round(8.25) = 8), back 8.25 (8).
    (row,) = (r for r in report.rows if (r.method, r.instance) == ("nearest_neighbor", "tiny"))
    assert (row.value, row.reference, row.reference_kind) == (32.0, 32.0, "best known")
    assert (row.gap, row.problem, row.size) == (0.0, "cvrp", 5)
    other = [r for r in report.rows if r.instance == "other"]
    assert {r.reference_kind for r in other} == {"best found"}
    assert min(r.gap for r in other) == 0.0


def test_job_shops(tmp_path: Path):
    """Makespans of stored schedules, by a solver and by models of both problems."""
    (tmp_path / "two").write_text(JSP)
    (tmp_path / "flexible.fjs").write_text(FJS)
    table = tmp_path / "bks.csv"
    table.write_text("instance,lb_2026,ub_2026\ntwo,10,10\nflexible,11,11\n")
    models = [
        L2DPolicy(env_name=problem, embed_dim=16, num_encoder_layers=1).save_pretrained(
            tmp_path / "models" / problem
        )
        for problem in ("jssp", "fjsp")
    ]
    spec = spec_of("dispatching", *map(str, models),
                   instances=[f"{tmp_path}/two:best_known={table}",
                              f"{tmp_path}/flexible.fjs:best_known={table}"])  # fmt: skip
    report = run_benchmark(spec, tmp_path / "out")
    assert [(row.instance, row.method) for row in report.errors] == [("flexible", "jssp:greedy")]
    assert "instance of jssp, got one of fjsp (flexible)" in report.errors[0].error
    assert {row.reference for row in report.rows} == {10.0, 11.0}
    assert {row.reference_kind for row in report.rows} == {"best known"}
    assert (report.rows[0].value, report.rows[0].gap, report.rows[0].size) == (12.0, 20.0, 6)
    for record in stored(tmp_path / "out"):
        if record["error"] is None:
            instance = read_instance(
                tmp_path / spec.instances[record["instance"] != "two"].files[0]
            )
            instance.check(record["solution"])
            assert record["value"] == instance.objective(record["solution"])


def test_models_are_decoded_in_batches(model: Path, tmp_path: Path):
    """Values are those of evaluate_policy; times are equal shares of a batch's."""
    env = get_env("cvrp", generator_params={"num_loc": 7})
    data = env.dataset(5, phase="test").data
    save_tensordict_to_npz(data, tmp_path / "data.npz")
    spec = spec_of(
        {"model": str(model), "batch_size": 2}, instances=[f"{tmp_path / 'data.npz'}:env=cvrp"]
    )
    report = run_benchmark(spec, tmp_path / "out")
    expected = evaluate_policy(env, AttentionModelPolicy.from_pretrained(model), data)["rewards"]
    assert [row.value for row in report.rows] == pytest.approx((-expected).tolist(), rel=1e-6)
    seconds = [row.seconds for row in report.rows]
    assert seconds[0] == seconds[1] and seconds[2] == seconds[3] and min(seconds) > 0
    assert [len(row.incumbents) for row in report.rows] == [1] * 5


def test_passes_are_points_of_a_trajectory(model: Path, tmp_path: Path):
    """The best of all passes counts; one pass more never makes it worse, and takes longer."""
    instances = ["cvrp:12:size=3:seed=5"]
    spec = spec_of(
        f"{model}:sampling:samples=2", f"{model}:sampling:samples=2:passes=6", instances=instances
    )
    rows = run_benchmark(spec, tmp_path).rows
    single, several = rows[0::2], rows[1::2]
    assert all(few.value >= many.value for few, many in zip(single, several, strict=True))
    assert all(row.value == row.incumbents.best for row in rows)
    assert max(len(row.incumbents) for row in several) > 1
    assert all(row.incumbents.times[-1] <= row.seconds for row in rows)
    # The first pass of both is the same: same seed, same batch.
    assert [r.incumbents.values[0] for r in several] == [r.value for r in single]


def test_more_is_better_for_prizes(tmp_path: Path):
    """Values of the orienteering problem are prizes, and a smaller prize is a positive gap."""
    spec = spec_of("nearest_neighbor", "random", instances=["op:20:size=4"])
    report = run_benchmark(spec, tmp_path)
    env = get_env("op", generator_params={"num_loc": 20})
    data = env.dataset(4, phase="test").data
    prizes = -env.solve(data, solver="random")[1]
    shown = [row.value for row in report.rows if row.method == "random"]
    # Instances are solved one by one, each with the first numbers of the same random stream.
    single = [-float(env.solve(data[k : k + 1], solver="random")[1]) for k in range(4)]
    assert shown == pytest.approx(single, rel=1e-6) and float(prizes.min()) > 0
    for best, row in zip(report.rows[0::2], report.rows[1::2], strict=True):
        top = max(best.value, row.value)
        assert row.gap == pytest.approx(100 * (top - row.value) / top)


@pytest.mark.solvers
def test_trajectories_of_pyvrp(files: Path, tmp_path: Path):
    """Improvements with their times, in whole units, ending with the value that is reported."""
    report = run_benchmark(spec_of("pyvrp:200ms", instances=[str(files / "t*.vrp")]), tmp_path)
    (row,) = report.rows
    assert (row.value, row.gap, row.incumbents.best) == (32.0, 0.0, 32.0)
    assert 0.2 <= row.seconds < 20.0
    assert row.incumbents.times[-1] < row.seconds
    assert all(value == int(value) for value in row.incumbents.values)
    assert 0.0 <= row.primal_integral < 50.0


# ---------------------------------------------------------------- failures


def test_one_failing_instance_loses_no_other(files: Path, tmp_path: Path):
    """A damaged file is an error row with the reason, in the tables as well."""
    (files / "damaged.vrp").write_text(VRP[:120])
    out = tmp_path / "out"
    report = run_benchmark(spec_of("nearest_neighbor", "random", instances=[str(files)]), out)
    failed = report.errors
    assert [(row.instance, row.method) for row in failed] == [
        ("damaged", "nearest_neighbor"), ("damaged", "random"),
    ]  # fmt: skip
    assert all("damaged.vrp" in row.error and "FileFormatError" in row.error for row in failed)
    assert [(line.solved, line.total) for line in report.lines] == [(2, 3)] * 2
    assert all(line.gap is not None for line in report.lines)
    write_report(report, out)
    assert "damaged.vrp" in (out / "table.md").read_text()
    draw_plots(report, out)


@pytest.mark.solvers
def test_solvers_and_models_that_do_not_fit(model: Path, tmp_path: Path):
    """A solver of tours on capacitated instances, a model on another problem, a damaged model."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{}")
    spec = spec_of("lkh", str(model), str(broken), "random",
                   instances=["tsp:6:size=2", "cvrp:6:size=2"])  # fmt: skip
    report = run_benchmark(spec, tmp_path / "out")
    errors = {(row.set, row.method): row.error for row in report.errors}
    assert set(errors) == {("cvrp6", "lkh"), ("tsp6", "am:greedy"),
                           ("tsp6", "broken:greedy"), ("cvrp6", "broken:greedy")}  # fmt: skip
    assert "UnsupportedError" in errors["cvrp6", "lkh"]
    assert "expected instances of cvrp" in errors["tsp6", "am:greedy"]
    assert "foreign file" in errors["tsp6", "broken:greedy"]
    assert len(report.errors) == 8 and len(report.rows) == 16


def test_a_bad_instance_in_a_batch_loses_no_other(model: Path, tmp_path: Path):
    """A batch that cannot be solved is solved one by one."""
    data = get_env("cvrp", generator_params={"num_loc": 6}).dataset(4, phase="test").data.clone()
    data["demand"][2] = torch.nan
    save_tensordict_to_npz(data, tmp_path / "data.npz")
    spec = spec_of(str(model), instances=[f"{tmp_path / 'data.npz'}:env=cvrp"])
    report = run_benchmark(spec, tmp_path / "out")
    assert [row.error is None for row in report.rows] == [True, True, False, True]
    assert "demand" in report.rows[2].error


def test_errors_are_tried_again_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not otherwise: they would fail again."""
    spec = spec_of("random", instances=["tsp:5:size=2"])
    with monkeypatch.context() as patch:
        patch.setattr("rl4co.tasks.benchmark.instances.TensorEntry.evaluate", lambda *_: [][0])
        first = run_benchmark(spec, tmp_path)
    assert [row.error for row in first.rows] == ["IndexError: list index out of range"] * 2
    assert len(run_benchmark(spec, tmp_path).errors) == 2
    assert run_benchmark(spec, tmp_path, retry_errors=True).errors == []
    assert run_benchmark(spec, tmp_path).errors == []
    assert len(stored(tmp_path)) == 4


# ---------------------------------------------------------------- store and resume


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Method and instance of each attempt from now on."""
    calls: list[tuple[str, str]] = []
    for kind in Runner.__subclasses__():
        original = kind.run

        def run(self, entries, original=original):
            calls.extend((self.name, entry.name) for entry in entries)
            return original(self, entries)

        monkeypatch.setattr(kind, "run", run)
    return calls


def test_a_second_run_skips_what_is_there(files: Path, tmp_path: Path, monkeypatch):
    """Only what is new is computed; a change of settings or content makes results new."""
    calls = count_calls(monkeypatch)
    out = tmp_path / "out"
    first = run_benchmark(spec_of("random", instances=[str(files)]), out)
    assert calls == [("random", "other"), ("random", "tiny")]
    calls.clear()
    again = run_benchmark(spec_of("random", instances=[str(files)]), out)
    assert calls == [] and as_records(again) == as_records(first)
    # Another name for the same, and a method more: only the latter is run.
    more = [{"solver": "random", "name": "floor"}, "random:seed=5"]
    third = run_benchmark(spec_of(*more, instances=[str(files)]), out)
    assert calls == [("random:seed=5", "other"), ("random:seed=5", "tiny")]
    assert [r.value for r in third.rows[0::2]] == [r.value for r in first.rows]
    calls.clear()
    (files / "tiny.vrp").write_text(VRP.replace("5 2 8", "5 2 9"))
    run_benchmark(spec_of("random", instances=[str(files)]), out)
    assert calls == [("random", "tiny")]
    calls.clear()
    run_benchmark(spec_of("random", instances=[str(files)], time_limit=2), out)
    assert calls == [("random", "other"), ("random", "tiny")]


def test_new_weights_are_a_new_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Results of a model that was trained further are not those stored under its old weights."""
    policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    folder = policy.save_pretrained(tmp_path / "model")
    spec = spec_of(str(folder), instances=["tsp:6:size=2"])
    calls = count_calls(monkeypatch)
    run_benchmark(spec, tmp_path / "out")
    assert len(calls) == 2
    with torch.no_grad():
        next(iter(policy.parameters())).add_(1.0)
    policy.save_pretrained(folder)
    run_benchmark(spec, tmp_path / "out")
    assert len(calls) == 4


def test_half_a_line_is_dropped(tmp_path: Path):
    """What a killed process wrote last may be incomplete; the rest is kept."""
    result = Result("k", "m", "i", value=1.0, seconds=0.5, incumbents=((0.5, 1.0),), solution=[[1]])
    with open_store(tmp_path) as store:
        store.add([result])
    with (tmp_path / FILE).open("a") as file:
        file.write('{"key": "l", "method"')
    with open_store(tmp_path) as store:
        assert store.results == {"k": result}
        store.add([Result("l", "m", "j", error="no")])
    assert [record["key"] for record in stored(tmp_path)] == ["k", "l"]


def test_a_changed_line_is_rejected(tmp_path: Path):
    """By its digest; lines without one, of earlier versions, are read."""
    result = Result("k", "m", "i", value=1.25, seconds=0.5, incumbents=((0.5, 1.25),), solution=[1])
    with open_store(tmp_path) as store:
        store.add([result])
    head, line = (tmp_path / FILE).read_text().splitlines()
    (tmp_path / FILE).write_text(f"{head}\n{line.replace('1.25', '0.5', 1)}\n")
    with pytest.raises(FileFormatError, match=r"line 2.*digest differs"), open_store(tmp_path):
        pass
    record = json.loads(line)
    del record["sha256"]
    (tmp_path / FILE).write_text(f"{head}\n{json.dumps(record)}\n")
    with open_store(tmp_path) as store:
        assert store.results == {"k": result}


def test_damaged_and_foreign_files_are_rejected(tmp_path: Path):
    """With the line that is wrong; nothing is overwritten."""
    (tmp_path / FILE).write_text('{"format": "rl4co-benchmark-1"}\n{"key": 3\n')
    with pytest.raises(FileFormatError, match="line 2"), open_store(tmp_path):
        pass
    (tmp_path / FILE).write_text('{"something": "else"}\n')
    with pytest.raises(FileFormatError, match="line 1"), open_store(tmp_path):
        pass
    assert (tmp_path / FILE).read_text() == '{"something": "else"}\n'


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_two_runs_do_not_share_a_folder(tmp_path: Path):
    """The second is told so."""
    busy = pytest.raises(ConfigError, match="no benchmark is running")
    with open_store(tmp_path), busy, open_store(tmp_path):
        pass


@pytest.mark.solvers
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_run_goes_on(tmp_path: Path):
    """SIGKILL in the middle: what was finished is kept to the letter, the rest is computed."""
    content = {"methods": ["nearest_neighbor", "pyvrp:300ms"], "instances": ["cvrp:8:size=6"]}
    (tmp_path / "spec.json").write_text(json.dumps(content))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [sys.executable, "-m", "rl4co.cli", "benchmark", "--spec", str(tmp_path / "spec.json"),
         "--out", str(out), "--json"],
        cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if (out / FILE).is_file() and (out / FILE).read_bytes().count(b"\n") >= 1 + 6 + 2:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = (out / FILE).read_bytes()
    finished = before.count(b"\n") - 1
    assert 8 <= finished < 12
    report = run_benchmark(parse_spec(content), out)
    after = (out / FILE).read_bytes()
    assert after.startswith(before[: before.rfind(b"\n") + 1])
    assert after.count(b"\n") == 13 and report.errors == []
    assert [row.value is not None for row in report.rows] == [True] * 12


@pytest.mark.solvers
def test_several_processes_give_the_same_values(tmp_path: Path):
    """And every result once."""
    spec = spec_of("insertion", "random", instances=["cvrp:8:size=4"])
    together = run_benchmark(spec, tmp_path / "a", num_procs=2)
    alone = run_benchmark(spec, tmp_path / "b")
    assert [row.value for row in together.rows] == [row.value for row in alone.rows]
    assert len(stored(tmp_path / "a")) == 8


# ---------------------------------------------------------------- report


class FakeEntry(BrokenEntry):
    """An instance without results."""

    def __init__(self, name: str, best_known: float | None = None, maximize: bool = False) -> None:
        super().__init__(name, "fake")
        self.best_known, self.maximize, self.size, self.problem = best_known, maximize, 10, "tsp"


def fake_report(values: dict[tuple[str, str], float | None], *entries: FakeEntry, **settings):
    """A report on methods x and y; times are 1 s and 2 s, incumbents come at the end."""
    methods = (SolverMethod("random", "x"), SolverMethod("random", "y"))
    spec = BenchmarkSpec(methods, (GeneratedSource("tsp", "set"),), **settings)
    seconds = {"x": 1.0, "y": 2.0}
    cells = {
        (m, "set", entry.name): [(None, Result(
            "", m, entry.name, value=value, seconds=seconds[m] if value is not None else None,
            incumbents=() if value is None else ((seconds[m], value),),
            error="Error: no" if value is None else None,
        ))]
        for m in seconds
        for entry in entries
        for value in [values[m, entry.name]]
    }  # fmt: skip
    return make_report(spec, [InstanceSet("set", entries, uniform=False)], cells)


def test_report_by_hand():
    """Instance a: best known 100, values 110 and 105. b: values 30 and 20, so 20 is the best.

    Gaps of x: 10 %, 50 %, mean 30 %; of y: 5 %, 0 %, mean 2.5 %. Over 4 s, x has nothing for 1 s,
    then its gap: (100 + 3 * 10) / 4 = 32.5, (100 + 3 * 50) / 4 = 62.5, mean 47.5 %. y: (200 + 2 *
    5) / 4 = 52.5, 50, mean 51.25 %.
    """
    values = {("x", "a"): 110.0, ("y", "a"): 105.0, ("x", "b"): 30.0, ("y", "b"): 20.0}
    report = fake_report(values, FakeEntry("a", 100.0), FakeEntry("b"), time_limit=4.0)
    x, y = report.lines
    assert (x.gap.mean, x.gap.maximum) == (30.0, 50.0)
    assert (y.gap.mean, y.gap.maximum) == (2.5, 5.0)
    assert (x.value, y.value) == (70.0, 62.5)
    assert (x.primal_integral, y.primal_integral) == (47.5, 51.25)
    assert (x.seconds.mean, y.seconds.mean, x.normalized_seconds) == (1.0, 2.0, None)
    assert x.references == "best known (1), best found (1)"


def test_reference_by_name():
    """Best known, then the named method, then the best found, which a note tells."""
    values = {("x", "a"): 110.0, ("y", "a"): 105.0, ("x", "b"): 30.0, ("y", "b"): 20.0,
              ("x", "c"): None, ("y", "c"): 7.0}  # fmt: skip
    entries = FakeEntry("a", 100.0), FakeEntry("b"), FakeEntry("c")
    report = fake_report(values, *entries, reference="x")
    kinds = [row.reference_kind for row in report.rows if row.method == "y"]
    assert kinds == ["best known", "x", "best found"]
    assert report.rows[3].gap == pytest.approx(-100 / 3)  # y is better than the reference on b
    assert report.notes == ("c: no value of the reference x, best found instead",)
    assert [(line.solved, line.total) for line in report.lines] == [(2, 3), (3, 3)]


def test_reference_of_prizes_and_of_zero():
    """The largest is the best prize; a reference of 0 leaves gaps empty and says so."""
    results = {m: [Result("", m, "a", value=v)] for m, v in (("x", 3.0), ("y", 5.0))}
    assert find_reference(FakeEntry("a", maximize=True), results, None) == (5.0, "best found")
    report = fake_report({("x", "a"): 3.0, ("y", "a"): 0.0}, FakeEntry("a", 0.0))
    assert [row.gap for row in report.rows] == [None, 0.0]
    assert report.lines[0].gap is None and "the reference is 0" in report.notes[0]


def test_times_of_another_machine(tmp_path: Path):
    """Score (1000 + 0) / 2 = 500 here, 250 there: twice the time."""
    marks = PassMark(cpu_mark=1000.0, reference=250.0)
    report = fake_report({("x", "a"): 3.0, ("y", "a"): 4.0}, FakeEntry("a"), passmark=marks)
    assert [line.normalized_seconds for line in report.lines] == [2.0, 4.0]
    write_report(report, tmp_path)
    assert "PassMark time" in (tmp_path / "table.md").read_text()
    assert marks.score(on_gpu=True) == 500.0


def test_files_of_a_report(tmp_path: Path):
    """Markdown for people, CSV and JSON for machines, with the same numbers."""
    values = {("x", "a"): 110.0, ("y", "a"): 105.0, ("x", "b|c"): 30.0, ("y", "b|c"): None}
    report = fake_report(values, FakeEntry("a", 100.0), FakeEntry("b|c"), time_limit=4.0)
    written = write_report(report, tmp_path / "new")
    assert [path.name for path in written] == [
        "table.md", "table.tex", "table.csv", "results.csv", "report.json",
    ]  # fmt: skip
    text = written[0].read_text()
    line = (
        "| set | y | 1/2 | 105.0 | 5.00 % | 5.00 % | 2.00 s | 52.50 % | best known (1), best found"
    )
    assert line in text
    assert "- y on b|c (set): Error: no" in text
    lines = list(csv.DictReader(written[2].open()))
    assert float(lines[0]["mean_gap"]) == 5.0 and lines[1]["solved"] == "1"
    rows = list(csv.DictReader(written[3].open()))
    assert len(rows) == 4 and rows[3]["error"] == "Error: no" and rows[3]["value"] == ""
    content = json.loads(written[4].read_text())
    assert content["rows"][0]["incumbents"] == [[1.0, 110.0]]
    assert content["versions"]["torch"] == torch.__version__


def test_failures_are_told_together():
    """One line for a method that fails on many instances for the same reason."""
    entries = [FakeEntry(name) for name in "abcde"]
    values = {(m, e.name): None if m == "x" else 1.0 for m in "xy" for e in entries}
    assert remarks(fake_report(values, *entries)) == ["x on a, b, c and 2 more (set): Error: no"]
    assert remarks(fake_report(values, *entries), limit=0) == ["... and 1 more, see report.json"]


# ---------------------------------------------------------------- plots


def test_curves_by_hand():
    """Mean gap from when both instances have a solution, to the end of the budget."""
    values = {("x", "a"): 110.0, ("y", "a"): 100.0, ("x", "b"): 30.0, ("y", "b"): 20.0}
    report = fake_report(values, FakeEntry("a"), FakeEntry("b"), time_limit=4.0)
    rows = [row for row in report.rows if row.method == "x"]
    assert _curve(rows, 4.0) == [(1.0, 30.0), (4.0, 30.0)]
    assert _curve([], 4.0) == []
    assert _groups([(1, 2.0), (1, 4.0), (5, 1.0)]) == [(1.0, 3.0), (5.0, 1.0)]
    # 16 sizes make 8 groups of 2.
    assert _groups([(size, 0.0) for size in range(16)])[:2] == [(0.5, 0.0), (2.5, 0.0)]


def test_plots_are_drawn_for_what_there_is(tmp_path: Path):
    """No plot by size for a single size; negative gaps and gaps of 0 are no obstacle."""
    values = {("x", "a"): 110.0, ("y", "a"): 100.0}
    report = fake_report(values, FakeEntry("a"))
    assert [path.name for path in draw_plots(report, tmp_path)] == [
        "gap_vs_time.png", "gap_over_time.png",
    ]  # fmt: skip
    for best in (500.0, 1.0, 100.0):
        figure = plot_gap_vs_time(fake_report(values, FakeEntry("a", best)))
        figure.draw_without_rendering()
        (ax,) = figure.axes
        bottom, top = ax.get_ylim()
        assert all(bottom < 100 * (value / best - 1) < top for value in values.values())
        assert ax.get_xscale() == "log"
    small, large = FakeEntry("a", 90.0), FakeEntry("b", 50.0)
    large.size = 500
    values |= {("x", "b"): 55.0, ("y", "b"): 70.0}
    figure = plot_gap_by_size(fake_report(values, small, large))
    (ax,) = figure.axes
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale()) == ("size", "gap (%)", "log")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "y"]
    nothing = fake_report({("x", "a"): None, ("y", "a"): None}, FakeEntry("a"))
    assert draw_plots(nothing, tmp_path) == []


# ---------------------------------------------------------------- command line


def run(*arguments: str):
    return CliRunner().invoke(app, ["benchmark", *arguments], env={"COLUMNS": "200"})


def test_command(files: Path, tmp_path: Path):
    """Files of one folder are one set; the table is shown, everything is written."""
    paths = [str(files / "tiny.vrp"), str(files / "other.vrp")]
    arguments = [*paths, "tsp:6:size=2", "tsp:9:size=1", "-m", "nearest_neighbor", "-m", "random",
                 "--reference", "random", "-o", str(tmp_path / "out"), "--name=Test"]  # fmt: skip
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "Test: files (reference: best known (1), random (1))" in result.stdout
    assert "Test: tsp6 (reference: random)" in result.stdout and "Test: all" in result.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {FILE, "table.md", "table.tex", "table.csv", "results.csv", "report.json",
                     "gap_vs_time.png", "gap_by_size.png", "gap_over_time.png"}  # fmt: skip
    machine = json.loads(run(*arguments, "--json", "--no-plots").stdout)
    assert len(machine["rows"]) == 10 and len(machine["files"]) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "at least one --method, or --spec FILE"),
        (["tsp:5"], "at least one --method"),
        (["tsp:5", "-m", "lhk"], "did you mean 'lkh'"),
        (["tsp:5", "--spec", "x.yaml"], "expected --spec alone"),
        (["nowhere", "-m", "random"], "under 'nowhere'"),
        (["tsp:5:size=1", "-m", "random", "--procs", "0"], "num_procs of at least 1, got 0"),
    ],
)
def test_errors_of_the_command(arguments: list[str], message: str, tmp_path: Path):
    """One line and exit code 2."""
    result = run(*arguments, "--out", str(tmp_path))
    assert result.exit_code == 2
    assert message in result.stderr and "Traceback" not in result.output


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path, monkeypatch):
    """Exit code 130, as after Ctrl-C in a shell."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rl4co.tasks.benchmark.runners.SolverRunner.run", interrupt)
    result = run("tsp:5:size=1", "-m", "random", "--out", str(tmp_path))
    assert result.exit_code == 130 and "the same command goes on" in result.stderr


def test_a_quoted_pattern_takes_the_table_of_best_known_values():
    """As a folder does; a text with settings of its own is left alone."""
    sources = _sources(["A/*.vrp", "tsp:20"], Path("best.csv"), 3)
    assert sources == [{"files": "A/*.vrp", "best_known": "best.csv", "limit": 3}, "tsp:20"]
