"""The page of a family: tables, claims and plots, as Markdown, LaTeX, CSV, JSON and PNG."""

from __future__ import annotations

import dataclasses
import json

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl4co.data.io import atomic_write
from rl4co.tasks.benchmark.machine import machine_facts
from rl4co.tasks.reproduce.claims import Verdict, judge
from rl4co.tasks.reproduce.paper import PaperValues
from rl4co.tasks.reproduce.pivot import Pivot, as_csv, latex, make_pivot, markdown
from rl4co.tasks.reproduce.plots import draw
from rl4co.tasks.reproduce.results import METRICS, Results
from rl4co.tasks.tables import csv_table, markdown_table

#: The table of all cells, and its metrics.
ALL_METHODS = "all_methods"
_MODERN = ("cost", "gap", "worst", "solved", "pi", "time", "latency", "solver", "minutes")
#: What is said above the tables.
LEGEND = """\
Ours first, then the paper's value in italics (with its size, where that differs). Behind ± is half
of the 95 % interval: over training seeds if there are at least three, else over test instances.
The smallest gap of a column is bold, the second one underlined. Times are per instance, of a batch;
"one instance, one core" is that of a batch of one, "solver at equal time" the gap that the
reference solver had by then."""


@dataclasses.dataclass(frozen=True)
class Page:
    """Everything that is said about a family.

    Attributes:
        results: Our results.
        pivots: Its tables.
        verdicts: Its claims.
    """

    results: Results
    pivots: tuple[Pivot, ...]
    verdicts: tuple[Verdict, ...]


def make_page(results: Results, claim: str | None = None) -> Page:
    """Tables and verdicts of a family.

    Args:
        results: Our results.
        claim: Part of the text of the claims to judge; None: all.
    """
    paper = PaperValues(results.family.paper)
    tables = [view for view in results.family.views if "table" in view]
    pivots = [make_pivot(results, paper, view) for view in tables]
    if results.measured:
        pivots.append(make_pivot(results, PaperValues([]), _all_methods(results)))
    return Page(results, tuple(pivots), tuple(judge(results, paper, claim)))


def _all_methods(results: Results) -> dict[str, Any]:
    """The view of all cells, with the metrics that any of them has."""
    present = [name for name in _MODERN if any(m.mean(name) is not None for m in results.measured)]
    axes = [axis for axis, options in results.family.axes.items() if len(options) > 1]
    rows = axes or [*results.family.axes][-1:]
    return {"table": ALL_METHODS, "rows": rows, "columns": [], "cells": present or ["gap"]}


def write_page(page: Page, folder: Path) -> list[Path]:
    """Writes the page and its parts; existing files are replaced."""
    family = page.results.family
    plots = draw(page.results, folder)
    texts = {f"{pivot.name}.tex": latex(pivot) for pivot in page.pivots}
    texts |= {f"{pivot.name}.csv": as_csv(pivot) for pivot in page.pivots}
    texts["claims.md"] = claims_table(page.verdicts)
    texts["report.md"] = page_text(page, plots)
    if page.results.measured:
        texts["cells.csv"] = csv_table(_records(page.results))
    content = {
        "family": family.name,
        "profile": family.profile,
        "cells": _records(page.results),
        "claims": [dataclasses.asdict(verdict) for verdict in page.verdicts],
        "notes": list(page.results.notes),
        "machine": machine_facts(),
        "machines": list(page.results.machines),
    }
    texts["report.json"] = json.dumps(content, indent=1) + "\n"
    for name, text in texts.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())
    return [*(folder / name for name in texts), *plots]


def page_text(page: Page, plots: Sequence[Path]) -> str:
    """The page in Markdown."""
    results = page.results
    family = results.family
    steps = sorted({each.cell.steps for each in results.measured if each.cell.steps is not None})
    minutes = sum(float(record["seconds"]) for record in _trainings(results)) / 60
    seeds = max((len(each.cell.methods) for each in results.measured), default=1)
    facts = [
        f"Profile `{family.profile}`, {results.done} of {len(results.measured)} cells",
        f"trainings of {_range(steps)} steps" if steps else "no trainings",
        "one seed" if seeds == 1 else f"{seeds} seeds",
        f"{minutes:.0f} minutes of training in all",
        *results.machines,
    ]
    parts = [f"# {family.title}", family.about, "; ".join(facts) + ".", "## Claims"]
    parts += [claims_table(page.verdicts), LEGEND]
    for pivot in page.pivots:
        parts += [f"## {pivot.name.replace('_', ' ').capitalize()}", markdown(pivot)]
    parts += [f"![{plot.stem.replace('_', ' ')}]({plot.name})" for plot in plots]
    errors = [
        f"{', '.join(each.axes.values())}: {count} × {reason}"
        for each in results.measured
        for reason, count in each.errors.items()
    ]
    if remarks := [*results.notes, *errors]:
        parts += ["## Remarks", "\n".join(f"- {text}" for text in remarks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _range(numbers: Sequence[int]) -> str:
    low, high = f"{numbers[0]:,}", f"{numbers[-1]:,}"
    return low if low == high else f"{low} to {high}"


def claims_table(verdicts: Sequence[Verdict]) -> str:
    """Claims with their verdicts in Markdown."""
    rows = [
        [verdict.text, f"**{verdict.verdict}**", evidence(verdict), verdict.note]
        for verdict in verdicts
    ]
    columns = ["claim", "verdict", "difference [95 % interval], negative if true", "note"]
    return "\n".join(markdown_table(columns, rows))


def evidence(verdict: Verdict) -> str:
    """The comparisons of a claim as text."""
    return "; ".join(
        " ".join([*each.axes.values(), f"{each.value:.3g} [{each.low:.3g}, {each.high:.3g}]"])
        for each in verdict.comparisons
    )


def _trainings(results: Results) -> list[dict[str, Any]]:
    records = {
        record["key"]: dict(record) for each in results.measured for record in each.trainings
    }
    return list(records.values())


def _records(results: Results) -> list[dict[str, object]]:
    """One record for each cell, for machines."""
    records = []
    for each in results.measured:
        record: dict[str, object] = {axis: each.axes.get(axis, "") for axis in results.family.axes}
        record |= {metric: each.mean(metric) for metric in METRICS}
        record["gap ±"] = each.half_width("gap")
        record["seeds"], record["instances"] = each.values.shape
        with np.errstate(all="ignore"):
            record["reference"] = _finite(float(np.nanmean(each.references)))
        records.append(record)
    return records


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None
