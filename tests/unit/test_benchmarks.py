"""The parts of the benchmarks that need no second package: counting, alternation, tables."""

from __future__ import annotations

import argparse
import itertools
import sys

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare, kernels, learning, published, report
from benchmarks.cases import MEMORY, NEW, PUBLISHED, TITLES, plan
from benchmarks.flops import ModelShape, am_step_flops, combined_rate, encoder_gemm_shapes
from benchmarks.runner import (
    Contender,
    ContenderError,
    Outcome,
    Run,
    Sample,
    Schedule,
    WorkerProcess,
    alternate,
    compare_values,
    import_run,
    summarize,
)

NO_PAUSE = Schedule(repeats=3, warmup=1, pause=0.0)


# ------------------------------------------------------------------------------------ flops


def test_flops_of_a_tiny_tsp_step_by_hand() -> None:
    """B = 1, N = 2, D = 4, F = 8, one layer, T = 3; every product is written out."""
    # init embedding: [2, 2] x [2, 4] = 32; gradient of the weights only
    # Q, K, V: [2, 4] x [4, 12] = 192; scores and values: 2 · (2·2·2·4) = 64; output: 64
    # feed-forward: [2, 4] x [4, 8] and back = 256; the layer is 192 + 64 + 64 + 256 = 576
    # decoder once: [2, 4] x [4, 12] = 192 and [1, 4] x [4, 4] = 32, together 224
    # decoder step: context [1, 8] x [8, 4] = 64, three products with 2 nodes: 3 · 16 = 48,
    # output [1, 4] x [4, 4] = 32, together 144; three steps 432
    flops = am_step_flops("tsp", 2, 1, 3, ModelShape(4, 8, 1))
    assert flops.encoder_forward == 32 + 576
    assert flops.encoder_backward == 32 + 2 * 576
    assert flops.decoder_prepare == 3 * 224
    assert flops.decoder_rollout == 432
    assert flops.decoder_replay == 3 * 432
    assert flops.total == 608 + 1184 + 672 + 432 + 1296


def test_flops_of_cvrp_count_the_depot_and_the_capacity() -> None:
    """One customer and the depot are N = 2; the context is D + 1 wide: 2·5·4 = 40 per step."""
    flops = am_step_flops("cvrp", 1, 1, 1, ModelShape(4, 8, 1))
    assert flops.decoder_rollout == 40 + 48 + 32
    assert flops.encoder_forward == 2 * 2 * 3 * 4 + 576


def test_flops_grow_with_batch_and_layers() -> None:
    one, many = am_step_flops("tsp", 20, 1, 20), am_step_flops("tsp", 20, 512, 20)
    assert many.total == pytest.approx(512 * one.total)
    deep = am_step_flops("tsp", 20, 1, 20, ModelShape(num_layers=6))
    init = 2 * 20 * 2 * 128
    assert deep.encoder_forward - init == 2 * (one.encoder_forward - init)


def test_combined_rate_is_total_work_over_total_time() -> None:
    """Two products of 2 and 6 GFLOP at 1 and 3 GFLOP/s take 2 s each: 8 GFLOP in 4 s."""
    shapes = [[1000, 1000, 1000], [1000, 1000, 3000]]
    assert combined_rate(shapes, [1.0, 3.0]) == pytest.approx(2.0)
    assert encoder_gemm_shapes("cvrp", 20, 512)[0] == [512 * 21, 128, 384]


# -------------------------------------------------------------------------------- alternation


def fake_runs(log: list[str], values: dict[str, list[float]]) -> dict[str, Run]:
    """Contenders that write their turns to `log` and return prepared values, then fail."""

    def make(name: str) -> Run:
        source = iter(values[name])

        def run() -> Sample:
            log.append(name)
            value = next(source, None)
            if value is None:
                raise ContenderError("worn out")
            return Sample(value, steps=20.0, cost=4.0)

        return run

    return {name: make(name) for name in values}


def test_contenders_take_turns_and_warm_up_is_dropped() -> None:
    log: list[str] = []
    values = {PUBLISHED: [9.0, 1.0, 2.0, 3.0], NEW: [9.0, 4.0, 5.0, 6.0]}
    outcomes = alternate(fake_runs(log, values), NO_PAUSE)
    assert log == [PUBLISHED, NEW] * 4
    assert outcomes[PUBLISHED].values == [1.0, 2.0, 3.0]
    assert outcomes[NEW].values == [4.0, 5.0, 6.0]
    assert outcomes[NEW].steps == [20.0] * 3
    assert outcomes[NEW].costs == [4.0] * 3


def test_a_failing_contender_drops_out_and_the_other_goes_on() -> None:
    log: list[str] = []
    values = {PUBLISHED: [9.0, 1.0], NEW: [9.0, 4.0, 5.0, 6.0]}
    outcomes = alternate(fake_runs(log, values), NO_PAUSE)
    assert outcomes[PUBLISHED].as_dict() == {"error": "worn out"}
    assert outcomes[NEW].values == [4.0, 5.0, 6.0]
    assert log.count(PUBLISHED) == 3  # warm-up, one value, the failure; never asked again


def test_the_budget_stops_a_row_but_not_below_the_least() -> None:
    log: list[str] = []
    values = {PUBLISHED: [1.0] * 20, NEW: [1.0] * 20}
    schedule = Schedule(repeats=15, warmup=1, budget=5.0, least=2, pause=0.0)
    ticks = itertools.count(0.0, 2.0)  # every look at the clock is 2 s later
    outcomes = alternate(fake_runs(log, values), schedule, clock=lambda: next(ticks))
    # start 0; before round 2: 2 s, round 3: 4 s, round 4: 6 s > 5 s
    assert len(outcomes[NEW].values) == 4
    strict = Schedule(repeats=15, warmup=0, budget=0.0, least=2, pause=0.0)
    assert len(alternate(fake_runs([], values), strict)[NEW].values) == 2


def test_rounds_are_announced_with_negative_warm_up() -> None:
    seen: list[tuple[str, int]] = []
    runs = fake_runs([], {NEW: [1.0] * 5})
    alternate(runs, Schedule(2, warmup=1, pause=0.0), lambda name, n: seen.append((name, n)))
    assert seen == [(NEW, -1), (NEW, 0), (NEW, 1)]


def test_medians_and_ratio() -> None:
    assert summarize([3.0, 1.0, 2.0]).median == 2.0
    ratio = compare_values([4.0, 6.0, 8.0], [1.0, 2.0, 4.0])
    # medians 6 / 2; neighbours 4 / 1, 6 / 2, 8 / 4
    assert (ratio.median, ratio.low, ratio.high) == (3.0, 2.0, 4.0)


# ---------------------------------------------------------------------------------- processes


FAKE_WORKER = """#!{python}
import json, sys, time
for line in sys.stdin:
    command = json.loads(line)["command"]
    if command == "die":
        print("last words", file=sys.stderr)
        sys.exit(3)
    if command == "hang":
        time.sleep(60)
    good, bad = {{"seconds": 0.5, "steps": 7, "cost": 4}}, {{"error": "ValueError: no"}}
    print(json.dumps(good if command == "run" else bad), flush=True)
"""


@pytest.fixture
def contender(tmp_path: Path) -> Contender:
    """A contender whose interpreter is a script that plays the worker."""
    script = tmp_path / "bin" / "python"
    script.parent.mkdir()
    script.write_text(FAKE_WORKER.format(python=sys.executable))
    script.chmod(0o755)
    return Contender(NEW, script, threads=1, timeout=20.0)


def test_worker_answers_errors_and_death(contender: Contender) -> None:
    with WorkerProcess(contender) as worker:
        assert worker.run() == Sample(0.5, 7, 4)
        with pytest.raises(ContenderError, match="ValueError: no"):
            worker.request("bad")
        with pytest.raises(ContenderError, match="exit code 3: last words"):
            worker.request("die")
        with pytest.raises(ContenderError, match="exit code 3"):
            worker.request("run")


def test_a_silent_worker_is_ended(contender: Contender) -> None:
    with WorkerProcess(contender) as worker:
        assert worker.run().value == 0.5
        worker.contender = replace(contender, timeout=0.2)
        with pytest.raises(ContenderError, match="no answer within"):
            worker.request("hang")


def test_missing_command_line_is_an_error_row(contender: Contender) -> None:
    with pytest.raises(ContenderError, match="has no command line"):
        import_run(contender, "rl4co --help")


def test_children_see_no_foreign_paths(
    contender: Contender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    environment = contender.environment()
    assert "PYTHONPATH" not in environment
    assert environment["OMP_NUM_THREADS"] == "1"


# --------------------------------------------------------------------------------- published


def test_published_location(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(published.VENV_VARIABLE, raising=False)
    assert published.venv_path() == published.DEFAULT_VENV.absolute()
    monkeypatch.setenv(published.VENV_VARIABLE, str(tmp_path / "a"))
    assert published.venv_path() == tmp_path / "a"
    assert published.venv_path(tmp_path / "b") == tmp_path / "b"


def test_torch_is_installed_first_and_then_held_fixed(tmp_path: Path) -> None:
    first, second = published.install_commands(tmp_path / "python", tmp_path / "c.txt", "URL")
    assert first[-3:] == ["--extra-index-url", "URL", f"torch=={published.TORCH_VERSION}"]
    wanted = ["rl4co==0.7.0", *published.EXTRAS]
    assert second[second.index("--constraint") :] == [
        "--constraint", str(tmp_path / "c.txt"), *wanted
    ]  # fmt: skip


def test_a_foreign_folder_is_never_modified(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").touch()
    with pytest.raises(published.PublishedVenvError, match="choose another --venv"):
        published.ensure_published(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


# ------------------------------------------------------------------------------------- tables


def make_row(old: dict[str, Any], new: dict[str, Any], name: str = "am_train") -> report.Row:
    case = plan([name], ["tsp"], [20])[0]
    metric = "peak_mib" if name in MEMORY else "seconds"
    contenders = {PUBLISHED: old, NEW: new}
    return {"case": case.as_dict(), "metric": metric, "contenders": contenders, "gemm": {}}


META = {
    "commit": "0123abc",
    "command": "python -m benchmarks.compare",
    "date": "2026-01-01 00:00 UTC",
    "cpu": "CPU",
    "cores": 2,
    "threads": 2,
    "versions": {PUBLISHED: "0.7.0", NEW: "1.0.0"},
    "hooks": {PUBLISHED: "none", NEW: "rl4co.training.memory:tune_allocator"},
}


def test_row_cells() -> None:
    old = {"values": [2.0, 4.0, 3.0], "steps": [20, 20, 20], "costs": [3.9, 3.8, 3.9]}
    new = {"values": [0.5, 0.6, 0.4], "steps": [20, 20, 20], "costs": [3.9, 3.9, 3.9]}
    assert report.row_cells(make_row(old, new)) == [
        "TSP 20",
        "512",
        "20",
        "3.900",
        "3.00 s (2.00..4.00)",
        "500 ms (400..600)",
        "6.00× (4.00..7.50)",
    ]


def test_a_failure_is_shown_and_has_no_ratio() -> None:
    cells = report.row_cells(make_row({"error": "KeyError: x"}, {"values": [0.05], "steps": [9]}))
    assert cells[2:] == ["– / 9", "–", "fails: KeyError: x", "50.0 ms (50.0..50.0)", "–"]


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (0.00123, "seconds", "1.23 ms"),
        (0.999, "seconds", "999 ms"),
        (12.34, "seconds", "12.3 s"),
        (512.0, "peak_mib", "512 MiB"),
        (2048.0, "peak_mib", "2.00 GiB"),
    ],
)
def test_units(value: float, metric: str, text: str) -> None:
    assert report.format_value(value, metric) == text


def test_roofline_uses_the_best_rate_of_the_run() -> None:
    row = make_row({"values": [4.0], "steps": [20]}, {"values": [1.0], "steps": [20]})
    flops = am_step_flops("tsp", 20, 512, 20).total
    # rates such that the products alone take half a second, at the encoder's rate a whole one
    row["gemm"] = {"square": 2 * flops / 1e9, "encoder": flops / 1e9}
    (cells,) = report.roofline_rows({"rows": [row]})
    assert cells[-4:] == ["500 ms", "8.00×", "2.00×", "1.00×"]
    assert report.roofline_rows({"rows": [make_row({"error": "a"}, {"error": "b"})]}) == []


def test_rendered_result_has_table_and_facts() -> None:
    row = make_row({"error": "a|b"}, {"values": [1.0], "steps": [20]})
    text = report.render_result({"case": "am_train", "meta": META, "rows": [row]})
    assert text.startswith(f"### {TITLES['am_train']}\n\n|  | batch |")
    assert "fails: a\\|b" in text
    assert "set-up hook (allocator) published: none, new: rl4co.training.memory" in text
    assert "CPU, 2 cores, 2 threads" in text
    assert f"commit {META['commit']}" in text


def test_sections_are_replaced_again_and_again() -> None:
    text = "top\n<!-- x:begin -->\nold\n<!-- x:end -->\nbottom"
    once = report.replace_section(text, "x", "new")
    assert once == "top\n<!-- x:begin -->\n\nnew\n\n<!-- x:end -->\nbottom"
    assert report.replace_section(once, "x", "new") == once
    with pytest.raises(ValueError, match="expected the markers"):
        report.replace_section("nothing", "x", "new")


def test_the_readme_has_the_markers() -> None:
    text = report.README.read_text(encoding="utf-8")
    for name in ("compare", "learning"):
        report.replace_section(text, name, "")


def test_results_are_stored_per_case(tmp_path: Path) -> None:
    row = make_row({"values": [1.0], "steps": []}, {"values": [1.0], "steps": []}, "greedy")
    report.write_json(tmp_path / "greedy.json", {"case": "greedy", "meta": META, "rows": [row]})
    assert [path.name for path in tmp_path.iterdir()] == ["greedy.json"]
    assert TITLES["greedy"] in report.render_comparison(tmp_path)
    assert report.render_comparison(tmp_path / "none") == "No results yet."


# ---------------------------------------------------------------------------- plan and command


def test_plan_covers_every_case_and_chunks_only_the_new_side() -> None:
    assert {case.name for case in plan(list(TITLES))} == set(TITLES)
    cases = plan(list(TITLES), ["tsp", "cvrp"])
    assert len([case for case in cases if case.name == "am_train"]) == 6
    plain, chunked = [case for case in cases if case.name == "peak_memory"][:2]
    assert plain.spec(NEW)["policy_kwargs"] == {}
    assert chunked.spec(NEW)["policy_kwargs"] == {"replay_chunk": 16}
    assert chunked.spec(PUBLISHED)["policy_kwargs"] == {}
    assert len(plan(["peak_memory"], ["tsp"], replay_chunk=0)) == 1
    assert {case.size for case in plan(["greedy"], ["tsp"], quick=True)} == {20}


def test_commands_carry_no_paths() -> None:
    options = ["--venv", "/secret/venv", "--python", "/secret/python", "--sizes", "20"]
    text = compare.command_line(compare.parse_arguments(options), "greedy")
    assert text.startswith("python -m benchmarks.compare --cases greedy --sizes 20")
    assert "secret" not in text
    learn = learning.parse_arguments(options[:4])
    assert isinstance(learn, argparse.Namespace)
    assert "secret" not in learning.command_line(learn)


def test_error_rows_carry_no_paths(contender: Contender, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(contender.python.parent.parent)

    def fail(*_: Any) -> dict[str, Outcome]:
        return {NEW: Outcome(error=f"no file {folder}/x")}

    monkeypatch.setattr(compare, "run_on_demand", fail)
    case = plan(["import_time"], [])[0]
    row = compare.run_case(case, {NEW: contender}, NO_PAUSE, lambda *_: None)
    assert row["contenders"][NEW] == {"error": "no file <venv>/x"}


@pytest.mark.slow
def test_a_quick_run_stores_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small, from the beginning to the table."""
    stored = {path: path.read_bytes() for path in report.RESULTS.iterdir() if path.is_file()}
    monkeypatch.setattr(report, "update_readme", lambda *_: pytest.fail("README was rewritten"))
    kernels.main(["--quick"])
    assert stored == {
        path: path.read_bytes() for path in report.RESULTS.iterdir() if path.is_file()
    }
