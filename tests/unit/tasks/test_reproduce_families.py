"""Every family of tables at the profile `smoke`, and the paper's values as data."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from rl4co.tasks.reproduce.report import make_page, write_page
from rl4co.tasks.reproduce.run import Shard, make_lanes, read_results, run_lanes
from rl4co.tasks.reproduce.table import (
    MODELS_FILE,
    expand,
    family_names,
    load_family,
)

FAMILIES = [name for name in family_names() if name != MODELS_FILE]
INSTANCES = "cvrplib_instances.csv"
#: Published numbers of the paper's text, which may not be here.
PAPER_TEXT = Path("/work/shared/paper/rl4co-paper.txt")


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
    page = make_page(results)
    files = {file.name for file in write_page(page, tmp_path / name)}
    assert {"report.md", "report.json", "claims.md", "cells.csv"} <= files
    report = json.loads((tmp_path / name / "report.json").read_text(encoding="utf-8"))
    assert len(report["cells"]) == len(cells) and report["machine"]["rl4co"]
    assert len(page.verdicts) == len(family.claims)
