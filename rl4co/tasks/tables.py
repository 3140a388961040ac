"""Tables as Markdown and CSV."""

from __future__ import annotations

import csv
import io

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [_line(columns), _line(["---"] * len(columns)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def csv_table(records: Iterable[Mapping[str, Any]]) -> str:
    """Records with the same keys as CSV; None is an empty cell."""
    rows = list(records)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
