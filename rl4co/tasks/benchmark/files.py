"""Writes a report to a folder: `table.md`, `.tex` and `.csv`, `results.csv` and `report.json`."""

from __future__ import annotations

import json
import os

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl4co.data.io import atomic_write
from rl4co.tasks.benchmark.machine import machine_facts
from rl4co.tasks.benchmark.report import Line, Report, as_records
from rl4co.tasks.tables import csv_table, markdown_table


def write_report(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Writes tables for people and machines; existing ones are replaced.

    Args:
        report: The report.
        folder: Folder of the files; created if needed.

    Returns:
        The files: `table.md`, `table.tex` and `table.csv` (per method and set), `results.csv` (per
        instance and seed), `report.json` (everything, with trajectories and versions of packages).
    """
    place = Path(folder)
    content = {**as_records(report), "versions": machine_facts()}
    texts = {
        "table.md": markdown(report),
        "table.tex": latex(report),
        "table.csv": csv_table(_line_record(line) for line in report.lines),
        "results.csv": csv_table(_without(row, "incumbents") for row in content["rows"]),
        "report.json": json.dumps(content, indent=1, allow_nan=False) + "\n",
    }
    for name, text in texts.items():
        with atomic_write(place / name) as file:
            file.write(text.encode())
    return [place / name for name in texts]


# ---------------------------------------------------------------- tables for people


def table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Names of columns and texts of cells, one line per method and set."""
    normalized = any(line.normalized_seconds is not None for line in report.lines)
    seeded = any(line.seeds > 1 for line in report.lines)
    routed = any(line.vehicles is not None for line in report.lines)
    columns = ["set", "method", "solved", *(["seeds"] if seeded else []), "value", "gap", "worst"]
    columns += [*(["vehicles"] if routed else []), "time"]
    columns += [*(["PassMark time"] if normalized else []), "PI", "reference"]
    cells = []
    for line in report.lines:
        gaps, seconds = line.gap, line.seconds
        row = [line.set, line.method, f"{line.solved}/{line.total}"]
        row += [str(line.seeds)] if seeded else []
        row += [
            _number(line.value) + _plus_minus(line.value_spread),
            _percent(None if gaps is None else gaps.mean, line.gap_spread),
            _percent(None if gaps is None else gaps.maximum),
        ]
        row += [_number(line.vehicles)] if routed else []
        row += [_time(None if seconds is None else seconds.mean)]
        row += [_time(line.normalized_seconds)] if normalized else []
        cells.append([*row, _percent(line.primal_integral), line.references])
    return columns, cells


def legend(report: Report) -> str:
    """Explanation of the columns."""
    text = (
        "Values, gaps to the reference, times per instance and primal integrals (PI, over "
        f"{_time(report.horizon)}) are means over the instances that a method solved; the time of "
        "a model is that of its batch, divided by the instances in it."
    )
    if any(line.seeds > 1 for line in report.lines):
        text += " Behind ± is the standard deviation of the means of the seeds."
    return text


def remarks(report: Report, limit: int = 20) -> list[str]:
    """Failures with the last line of their errors, and notes on references."""
    failed: dict[tuple[str, str, str], list[str]] = {}
    for row in report.errors:
        reason = (row.error or "").splitlines()[-1]
        failed.setdefault((row.method, row.set, reason), []).append(row.instance)
    texts = [
        f"{method} on {_names(list(dict.fromkeys(names)))} ({set_name}): {reason}"
        for (method, set_name, reason), names in failed.items()
    ]
    texts += report.notes
    more = len(texts) - limit
    return texts if more <= 0 else [*texts[:limit], f"... and {more} more, see report.json"]


def _names(names: Sequence[str], limit: int = 3) -> str:
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def markdown(report: Report) -> str:
    """The table in Markdown, with errors and notes."""
    columns, cells = table(report)
    lines = [f"# {report.name}", "", *markdown_table(columns, cells), "", legend(report), ""]
    if texts := remarks(report):
        lines += [*(f"- {text}" for text in texts), ""]
    return "\n".join(lines)


def latex(report: Report) -> str:
    r"""The table in LaTeX (it needs `\usepackage{booktabs}`), the smallest gap of a set in bold."""
    columns, cells = table(report)
    gaps = {(line.set, line.method): line.gap.mean for line in report.lines if line.gap}
    names = [escape(name) for name in columns]
    lines = [
        f"% {' '.join(report.name.split())}: {legend(report)}",
        f"\\begin{{tabular}}{{ll{'r' * (len(columns) - 3)}l}}",
        "\\toprule",
        f"{' & '.join(names)} \\\\",
    ]
    before = None
    for row in cells:
        best = min((gap for (name, _), gap in gaps.items() if name == row[0]), default=None)
        texts = [escape(cell) for cell in row]
        if best is not None and gaps.get((row[0], row[1])) == best:
            column = columns.index("gap")
            texts[column] = f"\\textbf{{{texts[column]}}}"
        lines += ["\\midrule"] if row[0] != before else []
        lines += [f"{' & '.join(texts)} \\\\"]
        before = row[0]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


#: Character with a special meaning in LaTeX → how to write it.
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def escape(text: str) -> str:
    """A text in which no character has a special meaning in LaTeX."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4g}"


def _percent(value: float | None, spread: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.2f} %" if spread is None else f"{value:.2f} ± {spread:.2f} %"


def _plus_minus(spread: float | None) -> str:
    return "" if spread is None else f" ± {_number(spread)}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:,.0f} s"


# ---------------------------------------------------------------- tables for machines


def _line_record(line: Line) -> dict[str, Any]:
    gaps, seconds = line.gap, line.seconds
    return {
        "set": line.set,
        "method": line.method,
        "solved": line.solved,
        "total": line.total,
        "mean_value": line.value,
        "mean_gap": None if gaps is None else gaps.mean,
        "median_gap": None if gaps is None else gaps.median,
        "max_gap": None if gaps is None else gaps.maximum,
        "mean_seconds": None if seconds is None else seconds.mean,
        "max_seconds": None if seconds is None else seconds.maximum,
        "mean_normalized_seconds": line.normalized_seconds,
        "mean_primal_integral": line.primal_integral,
        "references": line.references,
        "seeds": line.seeds,
        "value_spread": line.value_spread,
        "gap_spread": line.gap_spread,
        "mean_vehicles": line.vehicles,
    }


def _without(record: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != key}
