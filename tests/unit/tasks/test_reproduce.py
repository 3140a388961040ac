"""The engine behind `rl4co reproduce`: keys, budgets, shards, claims, merged folders, bad input."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import signal
import subprocess
import sys

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rl4co.core.errors import ConfigError, FileFormatError, UnknownNameError, WriteError
from rl4co.tasks.benchmark import recipes
from rl4co.tasks.benchmark.recipes import folder_of, key_of, read_training, train
from rl4co.tasks.benchmark.spec import Recipe
from rl4co.tasks.benchmark.store import BatchResult, ResultStore, open_store
from rl4co.tasks.reproduce import claims
from rl4co.tasks.reproduce.claims import VERDICTS, judge
from rl4co.tasks.reproduce.paper import PaperValues
from rl4co.tasks.reproduce.report import make_page, page_text
from rl4co.tasks.reproduce.results import Measured, Results
from rl4co.tasks.reproduce.run import Shard, deal, make_lanes, merge, read_results, run_lanes
from rl4co.tasks.reproduce.table import Cell, expand, load_family, two_digits
from tests.commands import Commands

TINY = {
    "trainer": "cpu",
    "env.generator_params.num_loc": 5,
    "model.batch_size": 4,
    "model.val_data_size": 4,
    "model.policy_kwargs": {"embed_dim": 16, "num_encoder_layers": 1, "num_heads": 2},
}
POMO = Recipe("routing/pomo", TINY, steps=2)

FILE: dict[str, Any] = {
    "title": "A test",
    "defaults": {
        "instances": {"env": "tsp", "size": 3, "params": {"num_loc": 5}},
        "reference": "nearest_neighbor",
        "recipe": {"overrides": TINY},
    },
    "axes": {
        "method": {
            "AM": {"recipe": {"experiment": "routing/am"}, "cost": 0.6},
            "POMO": {"recipe": {"experiment": "routing/pomo"}, "cost": 0.1},
            "random": {"solver": "random", "without": "decoding"},
        },
        "decoding": {
            "greedy": {"decode": {"method": "greedy"}},
            "sampling": {"decode": {"method": "sampling", "samples": 3}},
        },
    },
    "profiles": {"smoke": {"steps": 2, "seeds": [1]}, "cpu": {"budget": 2, "seeds": [1, 2]}},
    "views": [{"table": "costs", "rows": ["decoding", "method"], "cells": ["cost", "gap"]}],
    "claims": [{"text": "POMO is better", "less": ["POMO", "AM"]}],
}


def write_file(folder: Path, **changes: Any) -> str:
    path = folder / "family.yaml"
    path.write_text(yaml.safe_dump({**FILE, **changes}, sort_keys=False))
    return str(path)


# ---------------------------------------------------------------- keys


def test_literal_keys():
    """Another version of the library must not orphan stored results without saying so."""
    assert key_of(POMO)[:12] == "52f346570eb5"
    dense = Recipe("scheduling/gnn-ppo", {"trainer": "cpu"}, steps=100)
    assert key_of(dense)[:12] == "2fbbd6fd600a"


def test_keys_depend_on_what_changes_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not on order, folders, loggers, devices or threads."""
    reverse = dict(reversed(TINY.items()))
    passive = {
        "logger": "none", "paths.log_dir": "elsewhere", "trainer.devices": 2, "tags": ["x"],
        "trainer.enable_progress_bar": True, "test": True,
    }  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for overrides in (reverse, {**TINY, **passive}):
        assert key_of(dataclasses.replace(POMO, overrides=overrides)) == key_of(POMO)
    others = [
        dataclasses.replace(POMO, seed=2),
        dataclasses.replace(POMO, steps=3),
        dataclasses.replace(POMO, start=dataclasses.replace(POMO, seed=3)),
        dataclasses.replace(POMO, overrides={**TINY, "model.optimizer_kwargs.lr": 0.1}),
        dataclasses.replace(POMO, experiment="routing/am"),
    ]
    assert len({key_of(recipe) for recipe in (*others, POMO)}) == len(others) + 1


def test_names_are_not_in_keys(tmp_path: Path):
    """Renamed methods find their results."""
    family = load_family(write_file(tmp_path), "smoke")
    cells = expand(family)
    run_lanes(make_lanes(cells), tmp_path, Shard(), progress=False)
    methods = {f"our {name}": each for name, each in FILE["axes"]["method"].items()}
    claim = {"text": "better", "less": ["our POMO", "our AM"]}
    axes = {**FILE["axes"], "method": methods}
    renamed = load_family(write_file(tmp_path, axes=axes, claims=[claim]), "smoke")
    results = read_results(renamed, expand(renamed), tmp_path)
    assert results.done == len(results.measured) == 5


# ---------------------------------------------------------------- budgets


def test_budgets(tmp_path: Path):
    """The slowest method makes the steps of its minutes; the others as many, or as long."""
    family = load_family(write_file(tmp_path), "cpu")

    def steps(**settings: Any) -> dict[str, int | None]:
        cells = expand(family, **settings)
        return {cell.axes["method"]: cell.steps for cell in cells}

    assert steps() == {"AM": 200, "POMO": 200, "random": None}
    assert steps(budget=1.2) == {"AM": 120, "POMO": 120, "random": None}
    assert steps(equal="minutes") == {"AM": 200, "POMO": 1200, "random": None}
    assert all(len(cell.methods) == 2 for cell in expand(family) if cell.steps)
    assert all(len(cell.methods) == 3 for cell in expand(family, seeds=3) if cell.steps)
    minutes = {cell.axes["method"]: cell.minutes for cell in expand(family)}
    assert minutes["AM"] == pytest.approx(2.0) and minutes["POMO"] == pytest.approx(1 / 3)
    with pytest.raises(
        ConfigError, match=r"at least 0\.5 minutes, in .*AM.* makes 50 steps, got 0\.1"
    ):
        expand(family, budget=0.1)
    with pytest.raises(ConfigError, match="expected `solutions`"):
        expand(family, equal="samples")
    with pytest.raises(UnknownNameError, match="equal"):
        expand(family, equal="joules")
    with pytest.raises(ConfigError, match="positive number"):
        expand(family, budget=float("nan"))


def test_equal_samples(tmp_path: Path):
    """Steps times solutions of a step are equal."""
    methods = dict(FILE["axes"]["method"])
    methods["AM"] = {**methods["AM"], "solutions": 100}
    methods["POMO"] = {**methods["POMO"], "solutions": 10, "factor": 2}
    file = write_file(tmp_path, axes={**FILE["axes"], "method": methods}, equal="samples")
    steps = {cell.axes["method"]: cell.steps for cell in expand(load_family(file, "cpu"))}
    assert steps == {"AM": 120, "POMO": 2400, "random": None}


@pytest.mark.parametrize(
    ("number", "rounded"), [(0.2, 1), (7.4, 7), (99.6, 100), (123.4, 120), (98765, 99000)]
)
def test_two_digits(number: float, rounded: int):
    """Similar budgets share trainings."""
    assert two_digits(number) == rounded


def test_expansion(tmp_path: Path):
    """Solvers have no decoding; exceptions change and drop cells; `only` selects."""
    rules = [
        {"where": {"method": "AM", "decoding": "sampling"}, "drop": True},
        {"where": {"method": "POMO"}, "set": {"recipe": {"overrides": {"model.batch_size": 7}}}},
    ]
    family = load_family(write_file(tmp_path, exceptions=rules), "smoke")
    cells = expand(family)
    assert [tuple(cell.axes.values()) for cell in cells] == [
        ("AM", "greedy"), ("POMO", "greedy"), ("POMO", "sampling"), ("random",),
    ]  # fmt: skip
    pomo: Any = cells[1].methods[0]
    assert pomo.recipe.overrides["model.batch_size"] == 7 and pomo.recipe.steps == 2
    assert len(expand(family, only={"method": ["AM"]})) == 1


# ---------------------------------------------------------------- shards


def stub_trainer(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces training by writing a policy whose weights follow from the key."""
    import torch

    from rl4co.models import AttentionModelPolicy

    trained: list[str] = []

    def stub(recipe: Recipe, root: Path) -> Path:
        folder, key = folder_of(recipe, root), key_of(recipe)
        if recipes.is_trained(recipe, root):
            return folder
        trained.append(key)
        torch.manual_seed(int(key[:8], 16))
        policy = AttentionModelPolicy(env_name="tsp", embed_dim=16, num_heads=2)
        policy.save_pretrained(folder)
        record = {
            "key": key, "recipe": dataclasses.asdict(recipe), "steps": 2, "seconds": 1.0,
            "metrics": {}, "curve": [], "weights": recipes.weights_digest(folder), "machine": {},
        }  # fmt: skip
        (folder / recipes.TRAINING).write_text(json.dumps(record))
        return folder

    for module in ("rl4co.tasks.benchmark.runners", "rl4co.tasks.reproduce.run"):
        monkeypatch.setattr(f"{module}.train", stub)
    return trained


def without_times(results: Results) -> list[Any]:
    rows = [(m.axes, m.values.tolist(), m.references.tolist(), m.errors) for m in results.measured]
    return [*rows, *results.notes]


def test_shards_together_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each lane is in one shard; the report of all shards is that of one run."""
    trained = stub_trainer(monkeypatch)
    family = load_family(write_file(tmp_path), "cpu")
    cells = expand(family)
    lanes = make_lanes(cells)
    assert run_lanes(lanes, tmp_path / "whole", Shard(), progress=False) == []
    assert len(trained) == len(set(trained)) == 4  # two methods, two seeds
    for count in (1, 2, 3, 7):
        parts = [deal(lanes, Shard(index, count)) for index in range(1, count + 1)]
        keys = [lane.key for part in parts for lane in part]
        assert sorted(keys) == sorted(lane.key for lane in lanes)
        loads = [sum(lane.minutes for lane in part) for part in parts]
        assert max(loads) - min(loads) <= max(lane.minutes for lane in lanes) + 1e-9
    for index in (2, 1):
        part = deal(lanes, Shard(index, 2))
        assert run_lanes(part, tmp_path / "parts", Shard(index, 2), progress=False) == []
    whole = read_results(family, cells, tmp_path / "whole")
    parts_read = read_results(family, cells, tmp_path / "parts")
    assert whole.done == len(whole.measured) == 5
    assert without_times(whole) == without_times(parts_read)
    files = sorted(file.name for file in (tmp_path / "parts").glob("results*"))
    assert files == ["results.1-of-2.jsonl", "results.2-of-2.jsonl"]
    assert "POMO is better" in page_text(make_page(whole), [])
    assert all(each.latency is not None and each.latency > 0 for each in whole.measured)
    assert len(whole.machines) == 1


def test_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is missing is copied; other weights of a recipe are named, and not mixed."""
    stub_trainer(monkeypatch)
    family = load_family(write_file(tmp_path), "smoke")
    cells = expand(family)
    lanes = make_lanes(cells)
    run_lanes(lanes, tmp_path / "one", Shard(), progress=False)
    expected = without_times(read_results(family, cells, tmp_path / "one"))
    for index in (1, 2):
        run_lanes(deal(lanes, Shard(index, 2)), tmp_path / f"part{index}", Shard(), progress=False)
    parts = [tmp_path / "part1", tmp_path / "part2"]
    assert merge(tmp_path / "two", parts) == []
    assert without_times(read_results(family, cells, tmp_path / "two")) == expected
    before = sorted(path.read_bytes() for path in (tmp_path / "two").glob("results*"))
    assert merge(tmp_path / "two", parts) == []
    assert sorted(path.read_bytes() for path in (tmp_path / "two").glob("results*")) == before
    # The same recipe with other weights, whose results differ.
    pomo: Any = next(cell for cell in cells if cell.axes["method"] == "POMO").methods[0]
    am: Any = next(cell for cell in cells if cell.axes["method"] == "AM").methods[0]
    target = folder_of(pomo.recipe, tmp_path / "one")
    source = folder_of(am.recipe, tmp_path / "one")
    shutil.copy(source / recipes.WEIGHTS, target / recipes.WEIGHTS)
    record = json.loads((target / recipes.TRAINING).read_text())
    record["weights"] = recipes.weights_digest(target)
    (target / recipes.TRAINING).write_text(json.dumps(record))
    (conflict,) = merge(tmp_path / "two", [tmp_path / "one"])
    assert "other weights" in conflict and target.name in conflict
    assert without_times(read_results(family, cells, tmp_path / "two")) == expected
    with pytest.raises(FileNotFoundError, match="expected a folder with results"):
        merge(tmp_path / "two", [tmp_path / "nothing"])


def test_most_batches_win(tmp_path: Path):
    """Results of one set of weights count for each recipe, and the others are named."""

    def line(key: str, weights: str) -> BatchResult:
        facts = {"recipe": "r" * 20, "weights": weights}
        return BatchResult(key, "POMO", [1.0], 0.1, {}, {}, facts)

    with open_store(tmp_path, compact=True) as store:
        store.append([line("a", "x"), line("b", "y"), line("c", "y")])
    with open_store(tmp_path, compact=True) as store:
        (note,) = store.settle_weights()
    assert isinstance(store, ResultStore) and set(store.batches) == {"b", "c"}
    assert "1 batches of other weights" in note


# ---------------------------------------------------------------- interruptions


def test_interrupted_training_gives_the_same_weights(tmp_path: Path):
    """A process that is killed while it trains; the next one goes on from the checkpoint."""
    recipe = dataclasses.replace(POMO, steps=12, epochs=6)
    code = f"""
import os, signal
from pathlib import Path
from rl4co.tasks.benchmark.recipes import recipe_from, train
from rl4co.training.callbacks import LearningCurve
end = LearningCurve.on_train_epoch_end
def kill(self, trainer, module):
    end(self, trainer, module)
    if trainer.current_epoch == 3:
        os.kill(os.getpid(), signal.SIGKILL)
LearningCurve.on_train_epoch_end = kill
train(recipe_from({dataclasses.asdict(recipe)!r}), Path({str(tmp_path / "killed")!r}))
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    folder = folder_of(recipe, tmp_path / "killed")
    assert (folder / recipes.CHECKPOINT).is_file() and not (folder / recipes.TRAINING).is_file()
    resumed = read_training(train(recipe, tmp_path / "killed"))
    whole = read_training(train(recipe, tmp_path / "whole"))
    assert resumed["weights"] == whole["weights"]
    values = [[epoch["val/reward"] for epoch in each["curve"]] for each in (resumed, whole)]
    assert values[0] == values[1] and len(values[0]) == 6
    assert not (folder / recipes.CHECKPOINT).exists()


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run ends with a clear error, stored results stay, and the next run goes on."""
    stub_trainer(monkeypatch)
    family = load_family(write_file(tmp_path), "smoke")
    cells = expand(family)
    lanes = make_lanes(cells)
    append = ResultStore.append

    def full(self: ResultStore, lines: Any) -> None:
        if len(self.batches) == 2:
            self._file.write(b'{"half a line')
            self._file.flush()
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, lines)

    with monkeypatch.context() as patch:
        patch.setattr(ResultStore, "append", full)
        with pytest.raises((OSError, WriteError), match="No space left"):
            run_lanes(lanes, tmp_path / "out", Shard(), progress=False)
    assert read_results(family, cells, tmp_path / "out").done < 5
    assert run_lanes(lanes, tmp_path / "out", Shard(), progress=False) == []
    run_lanes(lanes, tmp_path / "whole", Shard(), progress=False)
    expected = without_times(read_results(family, cells, tmp_path / "whole"))
    assert without_times(read_results(family, cells, tmp_path / "out")) == expected


def test_changed_weights_raise(tmp_path: Path):
    """A record must be that of the weights beside it."""
    folder = train(POMO, tmp_path)
    weights = folder / recipes.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(FileFormatError, match="digest"):
        train(POMO, tmp_path)


# ---------------------------------------------------------------- claims


def results_of(
    values: Mapping[str, Any], claim: Mapping[str, Any], folder: Path, steps: int = 1000
) -> Results:
    """Results whose gaps are given, by method."""
    file = write_file(folder, claims=[{"text": "a claim", **claim}])
    family = load_family(file, "smoke")
    measured = []
    for method, gaps in values.items():
        array = np.atleast_2d(np.asarray(gaps, dtype=float))
        cell = Cell({"method": method, "decoding": "greedy"}, None, (), steps=steps)
        measured.append(
            Measured(
                cell, 1 + array / 100, np.ones(array.shape[1]), np.zeros_like(array),
                np.zeros_like(array), (), {}, False, (),
            )
        )  # fmt: skip
    return Results(family, measured, ())


LOW, HIGH = [1.0, 1.1, 0.9, 1.0], [5.0, 5.1, 4.9, 5.2]
LESS = {"less": ["POMO", "AM"]}


@pytest.mark.parametrize(
    ("pomo", "am", "claim", "verdict"),
    [
        (LOW, HIGH, LESS, claims.HOLDS),
        (HIGH, LOW, LESS, claims.FAILS),
        ([1.0, 9.0, 1.0, 9.0], [5.0, 5.0, 5.0, 4.9], LESS, claims.UNDECIDED),
        (LOW, HIGH, {**LESS, "from": 2000}, claims.BELOW_BUDGET),
        (HIGH, LOW, {**LESS, "contradiction": "a table says so"}, claims.CONTRADICTED),
        (LOW, [np.nan] * 4, LESS, claims.NOT_RUN),
        (LOW, HIGH, {**LESS, "by": 3}, claims.HOLDS),
        (LOW, HIGH, {**LESS, "by": 10}, claims.FAILS),
        (LOW, HIGH, {"best": "POMO"}, claims.HOLDS),
        (LOW, HIGH, {"best": "AM"}, claims.FAILS),
        (LOW, HIGH, {"at_most": ["AM", 6]}, claims.HOLDS),
        (LOW, HIGH, {"at_least": ["AM", 6]}, claims.FAILS),
        (LOW, HIGH, {**LESS, "where": {"decoding": "sampling"}}, claims.NOT_RUN),
        # Over three seeds: the means of two of them differ by more than between the methods.
        ([[1.0], [2.0], [9.0]], [[2.0], [9.0], [1.5]], LESS, claims.UNDECIDED),
        ([[1.0], [2.0], [3.0]], [[2.0], [3.01], [4.0]], LESS, claims.HOLDS),
    ],
)
def test_verdicts(pomo: Any, am: Any, claim: Mapping[str, Any], verdict: str, tmp_path: Path):
    """Each verdict, on numbers made for it."""
    results = results_of({"POMO": pomo, "AM": am}, claim, tmp_path)
    (found,) = judge(results, PaperValues([]))
    assert found.verdict == verdict, found
    assert verdict in (*VERDICTS, claims.NOT_RUN)


def test_printed_contradiction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The paper's own numbers say the opposite of its claim."""
    paper = PaperValues(["baselines.csv"])
    claim = {"less": ["AM", "POMO"]}  # greedy AM has the larger printed gap on TSP50
    results = results_of({"POMO": LOW, "AM": HIGH}, claim, tmp_path)
    paper.values = [v for v in paper.values if v.axes.get("problem") == "tsp"]
    (found,) = judge(results, paper)
    assert found.verdict == claims.CONTRADICTED and "does not hold" in found.note
    (found,) = judge(results_of({"POMO": LOW, "AM": HIGH}, LESS, tmp_path), paper)
    assert found.verdict == claims.HOLDS


def test_prizes():
    """Where more is better, gaps are positive for less."""
    cell = Cell({"method": "POMO"}, None, ())
    values, known = np.array([[9.0, 8.0]]), np.array([10.0, 10.0])
    measured = Measured(cell, values, known, values, values, (), {}, True, ())
    assert measured.mean("gap") == pytest.approx(15.0)
    assert measured.mean("gap_of_means") == pytest.approx(15.0)
    assert measured.mean("worst") == pytest.approx(20.0) and measured.mean("solved") == 100.0


def test_solver_at_equal_time(tmp_path: Path):
    """The gap that the reference had when a single instance was solved on one core."""
    cell = Cell({"method": "POMO", "decoding": "greedy"}, None, ())
    values, known = np.array([[11.0, 12.0]]), np.array([10.0, 10.0])
    early, late = [(0.1, 15.0), (0.4, 11.0), (2.0, 10.0)], [(0.2, 13.0), (3.0, 10.0)]
    measured = Measured(
        cell, values, known, values, values, (), {}, False, (),
        latency=0.5, reference_points=[early, late],
    )  # fmt: skip
    assert measured.mean("solver") == pytest.approx(20.0)  # 11 and 13 by then
    assert measured.mean("latency") == 0.5
    too_fast = dataclasses.replace(measured, latency=0.15)
    assert too_fast.mean("solver") is None
    family = load_family(write_file(tmp_path), "smoke")
    page = make_page(Results(family, [measured], (), ["rl4co 0, a machine"]))
    (pivot,) = [each for each in page.pivots if each.name == "all_methods"]
    metrics = [metric for _, metric in pivot.columns]
    assert {"gap", "worst", "solved", "latency", "solver"} <= set(metrics)
    assert "a machine" in page_text(page, [])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claims": [{"text": "x", "less": ["POMO", "AN"]}]}, "AN"),
        ({"claims": [{"text": "x", "less": ["POMO", "AM"], "wher": {}}]}, "wher"),
        ({"claims": [{"text": "x", "where": {"size": 5}, "best": "AM"}]}, "size"),
        ({"claims": [{"text": "x"}]}, "expected a claim with"),
    ],
)
def test_bad_claims(changes: dict[str, Any], message: str, tmp_path: Path):
    """Named before anything runs."""
    family = load_family(write_file(tmp_path, **changes), "smoke")
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        claims.check_claims(family)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "x"}, "titel"),
        ({"axes": {"method": {"a": {"solver": "random", "recipe": {"experiment": "x"}}}}}, "both"),
        ({"axes": {"method": {"a": {"recipe": {"experiment": "routing/pomm"}}}}}, "pomm"),
        ({"axes": {"method": {"a": {"solver": "randon"}}}}, "randon"),
        ({"axes": {"method": {"a": {"decode": {}}}}}, "got neither"),
        ({"axes": {"method": {"a": {"solver": "${nothing}"}}}}, "nothing"),
    ],
)
def test_bad_files(changes: dict[str, Any], message: str, tmp_path: Path):
    """The message names what is wrong."""
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        make_lanes(expand(load_family(write_file(tmp_path, **{"claims": [], **changes}), "smoke")))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["antz"], "'antz'"),
        (["ants", "--profile", "huge"], "huge"),
        (["ants", "--shard", "3/2"], "got 3/2"),
        (["ants", "--shard", "0/2"], "got 0/2"),
        (["ants", "--shard", "half"], "such as 1/4"),
        (["ants", "--only", "methods=GFACS"], "methods"),
        (["ants", "--only", "method=GFAX"], "GFAX"),
        (["ants", "--budget", "0.001"], "at least"),
        (["ants", "--profile", "smoke", "--claim", "nothing like it", "--report"], "nothing like"),
        (["ants", "--profile", "smoke", "--launcher", "slurm"], "slurm"),
        (["ants", "--merge", "nothing"], "nothing"),
    ],
)
def test_bad_arguments(
    words: list[str], message: str, command: Commands, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    """One line, and exit code 2."""
    monkeypatch.chdir(tmp_path)
    result = command("reproduce", *words)
    assert result.code == 2 and message in result.stderr.replace("\n", " "), result
    assert not result.stderr.count("Traceback")


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_launchers(launcher: str, tmp_path: Path):
    """Shards by a launcher of Hydra; their results are those of the family."""
    pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    from rl4co.tasks.reproduce.launch import launch

    methods = {"random": FILE["axes"]["method"]["random"], "nearest": {"solver": "savings"}}
    axes = {"method": {name: {**each, "recipe": None} for name, each in methods.items()}}
    file = write_file(tmp_path, axes=axes, views=[], claims=[], defaults=FILE["defaults"])
    arguments = [file, "--profile", "smoke", "--out", str(tmp_path / "out")]
    options = ["timeout_min=5"] if launcher.startswith("submitit") else ["n_jobs=1"]
    shards = 2 if launcher == "joblib" else 1  # every process takes seconds to start
    assert launch(launcher, shards, arguments, options, tmp_path / "out")
    family = load_family(file, "smoke")
    results = read_results(family, expand(family), tmp_path / "out")
    assert results.done == len(results.measured) == 2
