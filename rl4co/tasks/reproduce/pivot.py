"""Pivot tables: rows and columns from axes, ours and the paper's values side by side."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl4co.core.errors import UnknownNameError
from rl4co.tasks.benchmark.files import escape
from rl4co.tasks.reproduce.paper import SIZE, PaperValue, PaperValues
from rl4co.tasks.reproduce.results import METRICS, Measured, Results
from rl4co.tasks.tables import markdown_table

#: Metrics of which the smallest number of a column is marked.
_RANKED = ("gap", "gap_of_means", "worst", "pi")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A cell of a pivot table.

    Attributes:
        ours: Our value.
        half_width: Half of its 95 % interval.
        paper: The paper's value.
        paper_note: What differs in the paper, such as `N=50`.
        rank: 1 for the best of the column among ours, 2 for the second.
        note: A remark on our value, such as `one seed`.
    """

    ours: float | None = None
    half_width: float | None = None
    paper: PaperValue | None = None
    paper_note: str = ""
    rank: int | None = None


@dataclasses.dataclass(frozen=True)
class Pivot:
    """A table.

    Attributes:
        name: Name of the view.
        rows: Axes of the rows.
        labels: Options of each row.
        columns: Options and metric of each column.
        entries: Row by row.
    """

    name: str
    rows: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[tuple[str, ...], str], ...]
    entries: tuple[tuple[Entry, ...], ...]


def make_pivot(results: Results, paper: PaperValues, view: Mapping[str, Any]) -> Pivot:
    """The table of a view with `rows`, `columns`, `cells` and `where`.

    Axes that are neither rows, columns nor selected must have one option.
    """
    family = results.family
    rows, columns = _axes(view.get("rows", ())), _axes(view.get("columns", ()))
    where = dict(view.get("where", {}))
    for axis in (*rows, *columns, *where):
        if axis not in family.axes:
            raise UnknownNameError(f"axis of {family.name}", axis, family.axes)
    metrics = _axes(view.get("cells", "gap"))
    for metric in metrics:
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
    cells = {tuple(sorted(each.axes.items())): each for each in results.select(where)}
    row_names = _options(cells.values(), rows, paper, where)
    column_names = [
        names for names in itertools.product(*(family.axes[axis] for axis in columns))
        if any(_fits(cell, columns, names) for cell in cells.values())
    ]  # fmt: skip
    entries = []
    for row in row_names:
        line = []
        for names, metric in itertools.product(column_names, metrics):
            selection = {
                **dict(zip(rows, row, strict=True)),
                **dict(zip(columns, names, strict=True)),
            }
            line.append(_entry(list(cells.values()), paper, selection, where, metric))
        entries.append(line)
    heads = tuple(itertools.product(map(tuple, column_names), metrics))
    ranked = _ranked(entries, heads, row_names)
    return Pivot(view.get("table", "table"), rows, tuple(row_names), heads, ranked)


def _axes(entry: Any) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry)


def _fits(cell: Measured, axes: Sequence[str], names: Sequence[str]) -> bool:
    return all(cell.axes.get(axis, "") == name for axis, name in zip(axes, names, strict=True))


def _options(
    cells: Iterable[Measured], axes: Sequence[str], paper: PaperValues, where: Mapping[str, Any]
) -> list[tuple[str, ...]]:
    """Rows of ours, then those that only the paper has."""
    names = [tuple(cell.axes.get(axis, "") for axis in axes) for cell in cells]
    fixed = {axis: option for axis, option in where.items() if axis != SIZE}
    printed = [
        tuple(value.axes.get(axis, "") for axis in axes)
        for value in paper.values
        if axes[-1] in value.axes and _within(value.axes, fixed)
    ]
    ordered = list(dict.fromkeys(names))
    return ordered + [row for row in dict.fromkeys(printed) if row not in ordered]


def _within(axes: Mapping[str, str], where: Mapping[str, Any]) -> bool:
    from rl4co.tasks.reproduce.table import fits

    return fits(axes, where)


def _entry(
    cells: Sequence[Measured],
    paper: PaperValues,
    selection: Mapping[str, str],
    where: Mapping[str, Any],
    metric: str,
) -> Entry:
    matching = [
        cell for cell in cells
        if all(cell.axes.get(axis, "") in (option, "") for axis, option in selection.items())
        and all(axis in cell.axes or not option for axis, option in selection.items())
    ]  # fmt: skip
    chosen = {axis: option for axis, option in where.items() if isinstance(option, str)}
    axes = matching[0].axes if matching else {**chosen, **selection}
    axes = {axis: option for axis, option in axes.items() if option}
    value = paper.find(axes, metric)
    size = "" if value is None else value.axes.get(SIZE, "")
    note = f"N={size}" if size and size != axes.get(SIZE, size) else ""
    if not matching:
        return Entry(paper=value, paper_note=note)
    cell = matching[0]
    return Entry(cell.mean(metric), cell.half_width(metric), value, note)


def _ranked(
    entries: Sequence[Sequence[Entry]],
    heads: Sequence[tuple[tuple[str, ...], str]],
    labels: Sequence[tuple[str, ...]],
) -> tuple[tuple[Entry, ...], ...]:
    """Marks the two smallest gaps of each column among the rows of the same group."""
    ranked = [list(line) for line in entries]
    for column, (_, metric) in enumerate(heads):
        if metric not in _RANKED:
            continue
        for group in dict.fromkeys(label[:-1] for label in labels):
            members = [row for row, label in enumerate(labels) if label[:-1] == group]
            numbers = [(ranked[row][column].ours, row) for row in members]
            best = sorted((ours, row) for ours, row in numbers if ours is not None)
            for place, (_, row) in enumerate(best[:2] if len(best) > 2 else ()):
                ranked[row][column] = dataclasses.replace(ranked[row][column], rank=place + 1)
    return tuple(map(tuple, ranked))


# ---------------------------------------------------------------- texts


def heads(pivot: Pivot) -> list[str]:
    """Heads of the columns."""
    single = len({names for names, _ in pivot.columns}) == 1
    return [
        *pivot.rows,
        *(
            " ".join([*(() if single else names), METRICS[metric][0]])
            for names, metric in pivot.columns
        ),
    ]


def ours(entry: Entry, metric: str) -> str:
    """Our value with its interval."""
    if entry.ours is None:
        return ""
    digits = METRICS[metric][1]
    text = f"{entry.ours:.{digits}f}"
    return text if entry.half_width is None else f"{text} ± {entry.half_width:.{digits}f}"


def printed(entry: Entry) -> str:
    """The paper's value and what differs there."""
    if entry.paper is None:
        return ""
    return f"{entry.paper.text} ({entry.paper_note})" if entry.paper_note else entry.paper.text


def markdown(pivot: Pivot) -> str:
    """In Markdown: best bold, second underlined, the paper's values in italics after a slash."""
    marks = {1: "**{}**", 2: "<u>{}</u>", None: "{}"}
    lines = []
    for label, entries in zip(pivot.labels, pivot.entries, strict=True):
        texts = []
        for entry, (_, metric) in zip(entries, pivot.columns, strict=True):
            parts = [marks[entry.rank].format(ours(entry, metric)) if ours(entry, metric) else "–"]
            parts += [f"*{printed(entry)}*"] if printed(entry) else []
            texts.append(" / ".join(parts) if parts != ["–"] else "")
        lines.append([*label, *texts])
    return "\n".join(markdown_table(heads(pivot), lines))


def latex(pivot: Pivot) -> str:
    r"""In LaTeX, with `booktabs` and `xcolor`: the paper's values are grey."""
    marks = {1: "\\textbf{{{}}}", 2: "\\underline{{{}}}", None: "{}"}
    lines = [f"\\begin{{tabular}}{{{'l' * len(pivot.rows)}{'r' * len(pivot.columns)}}}",
             "\\toprule", f"{' & '.join(map(escape, heads(pivot)))} \\\\", "\\midrule"]  # fmt: skip
    before: tuple[str, ...] = pivot.labels[0][:-1] if pivot.labels else ()
    for label, entries in zip(pivot.labels, pivot.entries, strict=True):
        lines += ["\\midrule"] if label[:-1] != before else []
        before = label[:-1]
        texts = []
        for entry, (_, metric) in zip(entries, pivot.columns, strict=True):
            text = marks[entry.rank].format(escape(ours(entry, metric)))
            grey = f" \\textcolor{{gray}}{{{escape(printed(entry))}}}" if printed(entry) else ""
            texts.append(f"{text}{grey}".strip())
        lines.append(f"{' & '.join([*map(escape, label), *texts])} \\\\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", ""])


def as_csv(pivot: Pivot) -> str:
    """As CSV, with columns for our values, their intervals and the paper's values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = heads(pivot)[len(pivot.rows) :]
    kinds = ("", " ±", " paper")
    writer.writerow([*pivot.rows, *(f"{name}{kind}" for name in names for kind in kinds)])
    for label, entries in zip(pivot.labels, pivot.entries, strict=True):
        cells = [(e.ours, e.half_width, None if e.paper is None else e.paper.text) for e in entries]
        writer.writerow([*label, *itertools.chain(*cells)])
    return text.getvalue()


def rich_table(pivot: Pivot) -> tuple[list[str], list[list[Any]]]:
    """Heads and cells for a terminal: the paper's values are dim."""
    from rich.text import Text

    styles = {1: "bold", 2: "underline", None: ""}
    rows: list[list[Any]] = []
    for label, entries in zip(pivot.labels, pivot.entries, strict=True):
        cells: list[Any] = [*label]
        for entry, (_, metric) in zip(entries, pivot.columns, strict=True):
            text = Text(ours(entry, metric), style=styles[entry.rank])
            if printed(entry):
                text.append(f" {printed(entry)}", style="not bold not underline dim")
            cells.append(text)
        rows.append(cells)
    return heads(pivot), rows
