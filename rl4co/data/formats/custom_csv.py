"""Custom instances in CSV: one line per node, or a matrix of costs; see :mod:`.custom`.

Columns are separated by commas, semicolons or tabs; where they are not commas, numbers may have
decimal commas. A matrix may have the names of the nodes in its first line and its first column.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import re

from collections.abc import Mapping, Sequence
from typing import Any

from rl4co.data.formats.custom import (
    ALIASES,
    CLOCK,
    NO_CLOCK,
    SETTINGS,
    build_instance,
    unknown_key,
    unsupported,
)
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.source import CORRECT, Source, is_number

#: Column → key and position in its rows.
COLUMNS: Mapping[str, tuple[str, int | None]] = {
    "x": ("coordinates", 0),
    "y": ("coordinates", 1),
    "lat": ("lat", None),
    "lon": ("lon", None),
    "demand": ("demand", None),
    "backhaul_demand": ("backhaul_demand", None),
    "ready_time": ("time_windows", 0),
    "due_time": ("time_windows", 1),
    "service_time": ("service_times", None),
    "prize": ("prizes", None),
}
_NAMES = {"node", "delivery", *COLUMNS}
#: Words for a setting that holds or does not.
BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "1"), True),
    **dict.fromkeys(("false", "no", "0"), False),
}
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")


@dataclasses.dataclass(frozen=True)
class _Row:
    """The cells of one line."""

    line: int
    cells: list[str]


def looks_like_csv(source: Source) -> bool:
    """Whether a file has columns of nodes or is a matrix, unlike a table of best-known values."""
    lines = (line for line in source.lines if line.strip() and not line.startswith("#"))
    rows = [_split(line, _separator(line)) for line in itertools.islice(lines, 2)]
    head = rows[0] if rows else []
    is_labelled = (
        len(rows) > 1 and len(head) > 1 and rows[1][0] == head[len(head) - len(rows[1]) + 1]
    )
    is_matrix = all(is_number(cell.replace(",", ".")) for cell in head) or is_labelled
    return is_matrix or not _NAMES.isdisjoint(_column_names(head))


def read_csv(source: Source) -> BenchmarkInstance:
    """Read an instance from a CSV file."""
    settings: dict[str, Any] = {}
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(source.lines, start=1):
        if line.strip().startswith("#"):
            setting = _setting(source, number, line.strip("# \t"))
            if set(setting) & set(settings):
                raise source.fault(
                    "every setting once", f"a second {min(setting)}", CORRECT, line=number
                )
            settings.update(setting)
        elif line.strip():
            lines.append((number, line))
    if not lines:
        raise source.fault("the names of the columns", "nothing", CORRECT)
    separator = _separator(lines[0][1])
    rows = [_Row(number, _split(line, separator)) for number, line in lines]
    if separator != ",":
        _accept_decimal_commas(source, rows)
    labels, fields = _labelled_matrix(source, rows) or _columns(source, rows)
    return build_instance(source, {**settings, **fields}, labels)


def _separator(line: str) -> str:
    return next((mark for mark in "\t;" if mark in line), ",")


def _split(line: str, separator: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator))]


def _column_names(cells: Sequence[str]) -> list[str]:
    return [ALIASES.get(cell.lower(), cell.lower()) for cell in cells]


def _accept_decimal_commas(source: Source, rows: Sequence[_Row]) -> None:
    """Replace decimal commas by points, in place, unless the file has decimal points as well."""
    with_comma = [row for row in rows if any(map(_DECIMAL_COMMA.fullmatch, row.cells))]
    if not with_comma:
        return
    for row in rows:
        if any("." in cell and is_number(cell) for cell in row.cells):
            raise source.fault(
                "either decimal commas or decimal points", "both",
                f"use one of them (there is a comma in line {with_comma[0].line})", line=row.line,
            )  # fmt: skip
    for row in with_comma:
        row.cells[:] = [
            cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell for cell in row.cells
        ]


def _number(source: Source, cell: str, line: int, column: str) -> float:
    if CLOCK.fullmatch(cell):
        raise source.fault(NO_CLOCK, repr(cell), CORRECT, line=line, section=column)
    if _DECIMAL_COMMA.fullmatch(cell) or re.fullmatch(r"[\d.,]+,[\d.,]+", cell):
        raise source.fault(
            "numbers such as 1234.5", repr(cell),
            "write a decimal point and no separators of thousands, or separate columns by "
            "semicolons", line=line, section=column,
        )  # fmt: skip
    return source.numbers([cell], line, column)[0]


def _setting(source: Source, number: int, text: str) -> dict[str, Any]:
    """One line `# key: value`; other comments are skipped."""
    key, colon, word = (part.strip() for part in text.partition(":"))
    key = key.lower()
    if not colon or " " in key:
        return {}
    if key not in SETTINGS or SETTINGS[key] == (list,):
        setting_names = [key for key, kinds in SETTINGS.items() if kinds != (list,)]
        raise unknown_key(source, key, setting_names, line=number)
    kinds = SETTINGS[key]
    if kinds == (str,):
        return {key: word}
    if kinds == (bool,):
        if word.lower() not in BOOLEANS:
            raise source.fault("yes or no", repr(word), CORRECT, line=number, section=key)
        return {key: BOOLEANS[word.lower()]}
    numbers = re.split(r"[,;\s]+", word)
    if len(numbers) > 1 and all(map(is_number, numbers)):
        raise unsupported(source, key, repr(word), line=number)
    value = _number(source, word, number, key)
    return {key: int(value) if value == int(value) else value}


def _labelled_matrix(
    source: Source, rows: Sequence[_Row]
) -> tuple[tuple[str, ...] | None, dict[str, Any]] | None:
    """Names of the nodes and their matrix of costs; None if the file has columns of nodes."""
    head, *body = rows
    if all(map(is_number, head.cells)):
        return None, {"cost_matrix": [source.numbers(row.cells, row.line) for row in rows]}
    size = len(body)
    names = {ALIASES.get(cell.lower(), cell.lower()) for cell in head.cells}
    if len(head.cells) not in (size, size + 1) or not names.isdisjoint(
        {"node", "delivery", *COLUMNS}
    ):
        return None
    labels = head.cells[-size:]
    matrix = []
    for label, row in zip(labels, body, strict=True):
        cells = row.cells
        if len(cells) == size + 1:
            if cells[0] != label:
                raise source.fault(
                    f"{label!r}, as the first line and the first column of a matrix name the same "
                    "nodes in the same order", repr(cells[0]), CORRECT, line=row.line,
                )  # fmt: skip
            cells = cells[1:]
        matrix.append([_number(source, cell, row.line, label) for cell in cells])
    return tuple(labels), {"cost_matrix": matrix}


def _columns(source: Source, rows: Sequence[_Row]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the nodes, and the columns by key."""
    head, *body = rows
    names = _column_names(head.cells)
    for name in names:
        if name not in _NAMES:
            raise unknown_key(source, name, _NAMES, line=head.line, what="columns")
    source.require_distinct(names, "every column once", line=head.line)
    for row in body:
        if len(row.cells) != len(names):
            more = len(row.cells) > len(names)
            remedy = "separate them by semicolons if numbers have decimal commas"
            raise source.fault(
                f"{len(names)} columns", len(row.cells), remedy if more else CORRECT, line=row.line
            )
    cells = dict(zip(names, zip(*(row.cells for row in body), strict=True), strict=False))
    fields: dict[str, list[Any]] = {}
    for name, (key, position) in COLUMNS.items():
        if name not in cells:
            continue
        numbers = [_number(source, cell, row.line, name)
                   for cell, row in zip(cells[name], body, strict=True)]  # fmt: skip
        if position is None:
            fields[key] = numbers
        else:
            entries = fields.setdefault(key, [[] for _ in body])
            for entry, number in zip(entries, numbers, strict=True):
                entry.append(number)
    labels = cells.get("node", tuple(map(str, range(len(body)))))
    source.require_distinct(labels, "every node once", section="node")
    if "delivery" in names:
        fields["pairs"] = _pairs(source, labels, cells.get("delivery", ()), body)
    return labels, fields


def _pairs(
    source: Source, labels: Sequence[str], deliveries: Sequence[str], rows: Sequence[_Row]
) -> list[list[int]]:
    """Each pickup and its delivery, from the column that names the deliveries."""
    pairs = []
    for node, (label, row) in enumerate(zip(deliveries, rows, strict=True)):
        if label and label not in labels:
            raise source.fault(
                "one of the nodes", repr(label), CORRECT, line=row.line, section="delivery"
            )
        if label:
            pairs.append([node, labels.index(label)])
    return pairs
