"""Best-known values and bounds of an instance from a CSV table."""

from __future__ import annotations

import csv
import dataclasses
import math
import os
import re

from collections.abc import Sequence
from pathlib import Path

from rl4co.data.formats.benchmark import Benchmark
from rl4co.data.formats.content import name_of
from rl4co.data.formats.source import Source

#: Columns that name an instance.
NAME_COLUMNS = ("instance", "path", "name", "file")
#: Names of the columns with best-known values, besides pairs of bounds.
VALUE_COLUMNS = ("best_known", "bks", "optimum", "sol_cost", "cost", "best_score", "ea4op_score")


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Bounds on the best value of an instance.

    Attributes:
        lower: Value that no solution is below, None if unknown.
        upper: Value of the best-known solution, None if unknown.
    """

    lower: float | None
    upper: float | None


def read_best_known(
    table: str | os.PathLike[str], instance: Benchmark, column: str | None = None
) -> float | None:
    """The best-known value of an instance from a CSV table; None if its cell is empty.

    Args:
        table: CSV file with names of columns.
        instance: The instance, found by the path or name of its file, or by its name.
        column: Name of the column of values; None takes the first of :data:`VALUE_COLUMNS`, else
            the latest one of upper bounds (`ub_2026`), if there is one of lower bounds for it.

    Raises:
        FileFormatError: The table has no such column, or does not list the instance.
    """
    bounds = read_bounds(table, instance, column)
    if bounds is None:
        raise Source(Path(table), "", ()).fault(
            f"a line for {instance.name}", "none", "give the table of this set"
        )
    return bounds.upper


def read_bounds(
    table: str | os.PathLike[str], instance: Benchmark, column: str | None = None
) -> Bounds | None:
    """The best-known value of an instance, and the lower bound on it, from a CSV table.

    None if the table does not list the instance.

    Args:
        table: See :func:`read_best_known`.
        instance: See :func:`read_best_known`.
        column: See :func:`read_best_known`. The lower bound of `ub_2026` is in `lb_2026`.
    """
    source = Source.read(table)
    reader = csv.DictReader(source.text.splitlines())
    columns = list(reader.fieldnames or ())
    pairs = {upper: lower for lower, upper in _bound_columns(columns)}
    name_column = _pick(source, columns, NAME_COLUMNS)
    candidates = (*VALUE_COLUMNS, *pairs, "ub") if column is None else (column,)
    value_column = _pick(source, columns, candidates)
    rows = {row[name_column] or "": (reader.line_num, row) for row in reader}
    name = _find(source, list(rows), instance, name_column)
    if name is None:
        return None
    line, row = rows[name]

    def number(key: str | None) -> float | None:
        cell = "" if key is None else (row[key] or "").strip()
        return source.numbers([cell], line, key)[0] if cell else None

    return Bounds(number(pairs.get(value_column)), number(value_column))


def _find(source: Source, names: Sequence[str], instance: Benchmark, column: str) -> str | None:
    """The name in a table that means an instance, if there is one; it may be the path of a file."""
    file = instance.source or Path(instance.name)
    path = f"/{file.absolute().as_posix()}".lower()
    # File names first: several instances may have the same NAME.
    for wanted in (file.name, name_of(file), instance.name):
        matches = [name for name in names if Path(name).name.lower() == wanted.lower()]
        matches = [name for name in matches if path.endswith(f"/{name.lower()}")] or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise source.fault(
                f"one line for {instance.name}",
                f"{len(matches)} ({', '.join(matches[:3])}{', ...' if len(matches) > 3 else ''})",
                "keep the file in its folder, so that its path tells which one it is",
                section=column,
            )
    return None


def _pick(source: Source, names: Sequence[str], candidates: Sequence[str]) -> str:
    column = next((name for name in candidates if name in names), None)
    if column is None:
        raise source.fault(
            f"a column {' or '.join(candidates)}",
            f"{names}",
            "name the column with column=",
            line=1,
        )
    return column


def _bound_columns(columns: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of columns of a table with lower and upper bounds (`lb_2026`, `ub_2026`), latest first.

    The latest one has the largest year in its name; among equals the first counts.
    """
    suffixes = [name[2:] for name in columns if name[:2] == "lb" and f"ub{name[2:]}" in columns]
    return [(f"lb{end}", f"ub{end}") for end in sorted(suffixes, key=_year, reverse=True)]


def _year(suffix: str) -> float:
    digits = re.findall(r"\d{4}", suffix)
    return float(digits[-1]) if digits else -math.inf
