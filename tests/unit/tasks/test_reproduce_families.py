"""Every family of tables at the profile `smoke`, and the paper's values as data."""

from __future__ import annotations

import csv
import json

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rl4co.tasks.reproduce.claims import NOT_RUN, check_claims
from rl4co.tasks.reproduce.paper import ERRATA, PAPER, PaperValues, read_values, recomputed_gaps
from rl4co.tasks.reproduce.report import make_page, write_page
from rl4co.tasks.reproduce.run import Shard, make_lanes, read_results, run_lanes
from rl4co.tasks.reproduce.table import (
    MODELS_FILE,
    PROFILES,
    expand,
    family_names,
    load_family,
)

FAMILIES = [name for name in family_names() if name != MODELS_FILE]
INSTANCES = "cvrplib_instances.csv"


@pytest.mark.parametrize("name", FAMILIES)
def test_smoke(name: str, tmp_path: Path):
    """Trains, solves, draws and judges everything."""
    family = load_family(name, "smoke")
    cells = expand(family)
    failures = run_lanes(make_lanes(cells), tmp_path, Shard(), progress=False)
    assert not failures
    results = read_results(family, cells, tmp_path)
    errors = {reason for each in results.measured for reason in each.errors}
    assert not errors
    assert results.done == len(results.measured) > 0
    if name == "improve":  # trajectories, of which primal integrals are made
        lengths = [len(points) for m in results.measured for row in m.points for points in row]
        assert max(lengths) > 1
        assert all(m.mean("pi") is not None for m in results.measured)
    page = make_page(results)
    files = {file.name for file in write_page(page, tmp_path / name)}
    assert {"report.md", "report.json", "claims.md", "cells.csv"} <= files
    report = json.loads((tmp_path / name / "report.json").read_text(encoding="utf-8"))
    assert len(report["cells"]) == len(cells) and report["machine"]["rl4co"]
    assert len(page.verdicts) == len(family.claims)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", FAMILIES)
def test_profiles(name: str, profile: str):
    """Files expand at every profile, budgets suffice, and claims have options and lines."""
    family = load_family(name, profile)
    cells = expand(family)
    assert cells and len({tuple(sorted(cell.axes.items())) for cell in cells}) == len(cells)
    check_claims(family)
    assert family.claims
    if family.paper:  # families without the paper's values go beyond it
        assert all(claim["line"] > 0 for claim in family.claims)
    assert len({claim["text"] for claim in family.claims}) == len(family.claims)
    for claim in family.claims if profile == "paper" else ():
        assert any(cell.fits(claim.get("where", {})) for cell in cells), claim["text"]


# ---------------------------------------------------------------- the paper's values

FILES = sorted(file.name for file in PAPER.glob("*.csv") if file not in (ERRATA, PAPER / INSTANCES))


def read_rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("name", FILES)
def test_printed_gaps(name: str):
    """Exactly the errata differ from the gaps of the printed costs."""
    errata = {
        (int(row["line"]), row["column"], row["printed"]): float(row["recomputed"])
        for row in read_rows(ERRATA)
        if row["file"] == name
    }
    differing = {
        (value.line, value.column, value.text): gap
        for value, gap, agrees in recomputed_gaps(name)
        if not agrees
    }
    assert differing.keys() == errata.keys()
    for key, gap in differing.items():
        assert gap == pytest.approx(errata[key], abs=0.006), key


def test_errata_name_files():
    """None is left over from a file that is gone."""
    assert {row["file"] for row in read_rows(ERRATA)} <= set(FILES)


def test_means_of_instances():
    """The table of instances gives the printed gaps, and the means of the sets but for some."""
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in read_rows(PAPER / INSTANCES):
        for method in ("POMO", "MTPOMO", "MDPOMO"):
            gap = float(row[f"method={method}:gap"])
            cost, best = float(row[f"method={method}:cost"]), float(row["best_known"])
            assert gap == pytest.approx(100 * (cost / best - 1), abs=0.0051)
            gaps[row["instance"][0], method].append(gap)
    printed = {
        (value.axes["set"], value.axes["method"]): value.number
        for value in read_values("cvrplib.csv")
        if value.metric == "gap" and value.axes["trained"] == "50"
    }
    differing = {
        key for key, values in gaps.items() if abs(np.mean(values) - (printed[key] or 0)) > 0.0051
    }
    agreeing = gaps.keys() - differing
    assert ("A", "POMO") in agreeing and ("X", "POMO") in differing | agreeing
    assert ("A", "MTPOMO") in differing and ("P", "MTPOMO") in differing


@pytest.mark.parametrize("name", FILES)
def test_values_are_printed(name: str, shared_dir: Path):
    """Every value is in the line of the text that it names, or shortly after."""
    text = shared_dir / "paper" / "rl4co-paper.txt"
    if not text.is_file():
        pytest.skip("the text of the paper is not in the shared folder")
    lines = text.read_text(encoding="utf-8").splitlines()
    for value in read_values(name):
        nearby = " ".join(lines[value.line - 1 : value.line + 4])
        if value.text not in ("0.00", "0.000"):  # sometimes printed as a star or a dash
            assert value.text in nearby.replace("$", ""), (value.line, value.column, value.text)


def test_nearest_size():
    """A size that was not printed gets the nearest one."""
    paper = PaperValues(["baselines.csv"])
    axes = {"size": "40", "problem": "tsp", "decoding": "greedy", "method": "AM"}
    value = paper.find(axes, "gap")
    assert value is not None and value.axes["size"] == "50" and value.text == "1.41"
    assert paper.find({**axes, "method": "nothing"}, "gap") is None


def test_verdicts_without_results(tmp_path: Path):
    """Nothing is judged before it ran."""
    family = load_family("ants", "smoke")
    page = make_page(read_results(family, expand(family), tmp_path))
    assert {verdict.verdict for verdict in page.verdicts} == {NOT_RUN}
