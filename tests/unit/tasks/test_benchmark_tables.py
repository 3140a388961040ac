"""`rl4co benchmark`: seeds and their spread, numbers of vehicles, LaTeX, and failures."""

from __future__ import annotations

import csv
import json
import statistics

from pathlib import Path

import pytest

from rl4co.core.errors import ConfigError
from rl4co.models import AttentionModelPolicy
from rl4co.tasks.benchmark import parse_spec, run_benchmark, write_report
from rl4co.tasks.benchmark.files import latex, table
from rl4co.tasks.benchmark.instances import load_set
from rl4co.tasks.benchmark.parse import parse_seeds, parse_source
from tests.commands import Commands
from tests.unit.instance_texts import JSP, TSP, VRP


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with an instance."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.vrp").write_text(VRP)


def read_csv(path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def test_command(command: Commands):
    """One process: a broken file, three seeds, all files, and the exit code of a failure."""
    Path("broken.vrp").write_text("broken")
    methods = ("-m", "random", "-m", "nearest_neighbor")
    settings = ("--seeds", "3", "--no-plots", "--out", "out")
    result = command("benchmark", "tiny.vrp", "broken.vrp", *methods, *settings)
    assert result.code == 1, result.stderr
    # The broken file has no reference, so it is not counted as one with the best found.
    assert "(reference: best found)" in result.stdout
    assert "random on broken (" in result.stderr  # once, not once for each seed
    lines = {line["method"]: line for line in read_csv("out/table.csv")}
    assert (lines["random"]["solved"], lines["random"]["total"]) == ("3", "6")
    assert (lines["nearest_neighbor"]["seeds"], lines["random"]["seeds"]) == ("1", "3")
    rows = read_csv("out/results.csv")
    values = [float(row["value"]) for row in rows if row["method"] == "random" and row["value"]]
    assert [row["seed"] for row in rows if row["method"] == "random"] == ["1", "2", "3"] * 2
    assert float(lines["random"]["value_spread"]) == pytest.approx(statistics.stdev(values))
    assert lines["nearest_neighbor"]["mean_vehicles"] == "2.0"
    references = {row["reference_kind"] for row in rows if row["instance"] == "broken"}
    assert references == {"none"}
    stored = [json.loads(line) for line in Path("out/results.jsonl").read_text().splitlines()[1:]]
    assert len(stored) == 8
    tex = Path("out/table.tex").read_text()
    assert r"\begin{tabular}" in tex and r"$\pm$" in tex and "vehicles" in tex


def test_a_set_of_broken_files_only():
    """There is no reference, and that is what the table says."""
    Path("a.vrp").write_text("broken")
    spec = parse_spec({"methods": ["random"], "instances": ["a.vrp"], "reference": "random"})
    report = run_benchmark(spec, "out")
    assert [line.references for line in report.lines] == ["none"]
    assert (report.notes, len(report.errors)) == ((), 1)


def test_seeds_of_solvers_and_models():
    """Stochastic methods run with each seed, deterministic ones once; nothing is run twice."""
    policy = AttentionModelPolicy(env_name="cvrp", embed_dim=16, num_heads=2, num_encoder_layers=1)
    model = str(policy.save_pretrained("model"))
    methods = ["random", "nearest_neighbor", model, f"{model}:sampling:samples=2"]
    content = {"methods": methods, "instances": ["cvrp:8:size=2"], "seeds": [4, 7]}
    report = run_benchmark(parse_spec(content), "out")
    runs = {
        method: [row.seed for row in report.rows if row.method == method and row.instance == "0"]
        for method in report.methods
    }
    assert list(runs.values()) == [[4, 7], [None], [None], [4, 7]]
    means = [
        statistics.fmean(r.gap for r in report.rows if (r.method, r.seed) == ("random", seed))
        for seed in (4, 7)
    ]
    line = report.lines[0]
    assert line.gap_spread == pytest.approx(statistics.stdev(means))
    assert line.gap.mean == pytest.approx(statistics.fmean(means))
    assert report.lines[1].gap_spread is None
    columns, cells = table(report)
    assert cells[0][columns.index("gap")] == f"{line.gap.mean:.2f} ± {line.gap_spread:.2f} %"
    before = Path("out/results.jsonl").read_text()
    run_benchmark(parse_spec(content), "out")
    assert Path("out/results.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"seeds": 0}, "a number of seeds, or a list of them, got 0"),
        ({"seeds": "many"}, "got 'many'"),
        ({"seeds": [1, 1]}, "distinct seeds"),
        ({"seeds": 2, "methods": ["random:seed=1"]}, "`seeds` or a seed of 'random:seed=1'"),
    ],
)
def test_bad_seeds(content: dict[str, object], message: str):
    """Raises before anything runs."""
    with pytest.raises(ConfigError, match=message):
        parse_spec({"methods": ["random"], "instances": ["tsp:5"], **content})


def test_numbers_of_seeds():
    """A number counts from 1."""
    assert parse_seeds(3) == (1, 2, 3)
    assert parse_seeds([5, 0]) == (5, 0)


def test_numbers_of_vehicles():
    """Routes of files and of actions; none of tours, schedules and single routes."""
    Path("long.tsp").write_text(TSP)
    Path("two").write_text(JSP)
    for source, solution, count in (
        ("tiny.vrp", [[1, 2], [3, 4]], 2),
        ("long.tsp", [[0, 1, 2, 3, 4]], None),
        ("two", [[[2, 0]]], None),
        ("cvrp:4:size=1", [1, 2, 0, 3, 0, 4, 0, 0], 3),
        ("mtvrp:4:size=1", [4, 0, 1, 2, 3, 0], 2),
        ("tsp:4:size=1", [0, 1, 2, 3], None),
        ("pctsp:4:size=1", [1, 2, 0], None),
        ("pdp:4:size=1", [1, 3, 2, 4], None),
    ):
        (entry,) = load_set(parse_source(source)).entries
        assert entry.count_vehicles(solution) == count, source


def test_latex():
    """Signs with a meaning are escaped, the best of each set is bold, all lines have all cells."""
    methods = [{"name": "50% & more_{x}", "solver": "nearest_neighbor"}, "random"]
    content = {"methods": methods, "instances": ["cvrp:5:size=1", "tsp:5:size=1"], "seeds": 2}
    report = run_benchmark(parse_spec(content), "out")
    text = latex(report)
    assert r"50\% \& more\_\{x\}" in text and r"$\pm$" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    signs = {row.replace(r"\&", "").count("&") for row in rows}
    assert len(rows) == 7 and signs == {len(table(report)[0]) - 1}
    best = [row for row in rows if r"\textbf{" in row]
    assert {row.split(" & ")[0] for row in best} == {"cvrp5", "tsp5", "all"}
    assert text.count(r"\midrule") == 3
    assert text.splitlines()[1].startswith(r"\begin{tabular}{ll")
    assert [path.name for path in write_report(report, "out")][:2] == ["table.md", "table.tex"]
