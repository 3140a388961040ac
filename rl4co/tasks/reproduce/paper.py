"""The paper's values as data: wide CSV files, as printed, beside which ours are shown.

A file `rl4co/configs/reproduce/paper/NAME.csv` has a row for each printed row of a table:

    line,table,reference,size,decoding,method,problem=tsp:cost,problem=tsp:gap,problem=op:prize,...
    1775,ar-routing-50,yes,50,,Concorde,5.70,0.00,,...
    1787,ar-routing-50,,50,greedy,A2C,5.83,2.22,14.77,...

- `line`: where the row is printed in the text of the paper; `table`: label of the table, short.
- `reference`: `yes` if the gaps of this table refer to the row; in each column to the best of them.
- Columns without a colon are axes of the family's file, their entries options of these axes. An
  empty entry, or an axis without a column, means that the row does not depend on the axis. Options
  that our family does not have (`Concorde`) are shown with the paper's values alone.
- A column `AXIS=OPTION:METRIC`, or `AXIS=OPTION&AXIS=OPTION:METRIC`, has the values of a metric:
  `cost`, `prize` (more is better), `gap` or `gap_of_means` in percent, `time` as text, `pi`, or
  another one. Just `:METRIC` if the columns of the table are no options of an axis.
- Values are as printed, with all their digits; what is missing in print stays empty.

`errata.csv` lists the gaps that the printed costs contradict: file, line, column, the printed and
the recomputed value, and a note. A test recomputes all of them.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math

from collections.abc import Iterable, Iterator, Mapping

from rl4co.core.errors import FileFormatError
from rl4co.tasks.reproduce.table import FOLDER

PAPER = FOLDER / "paper"
ERRATA = PAPER / "errata.csv"
_FACTS = ("line", "table", "reference")
#: The axis whose nearest option is shown if ours was not printed.
SIZE = "size"
#: Metrics of which more is better, under the name of those of which less is.
_PRIZES = {"prize": "cost"}
_GAPS = ("gap", "gap_of_means")


@dataclasses.dataclass(frozen=True)
class PaperValue:
    """A printed value.

    Attributes:
        axes: Option of each axis.
        metric: What it measures: cost, gap, time, ...
        text: As printed.
        file: Name of the CSV file.
        line: Line of the paper.
        table: Label of the table.
        column: Column of the CSV file.
        reference: Whether gaps refer to the row.
        maximize: Whether more is better.
    """

    axes: Mapping[str, str]
    metric: str
    text: str
    file: str
    line: int
    table: str
    column: str
    reference: bool
    maximize: bool

    @property
    def number(self) -> float | None:
        """The value, if it is a number."""
        try:
            return float(self.text)
        except ValueError:
            return None


class PaperValues:
    """The printed values of a family.

    Args:
        files: Names of CSV files.
    """

    def __init__(self, files: Iterable[str]) -> None:
        self.values = [value for file in files for value in read_values(file)]

    def find(self, axes: Mapping[str, str], metric: str) -> PaperValue | None:
        """The value of a cell; if its size was not printed, that of the nearest size.

        Args:
            axes: Option of each axis.
            metric: What to look for.
        """
        matches = [v for v in self.values if v.metric == metric and _matches(v.axes, axes)]
        if not matches:
            without = {axis: option for axis, option in axes.items() if axis != SIZE}
            matches = [v for v in self.values if v.metric == metric and _matches(v.axes, without)]
            matches.sort(key=lambda value: _distance(value.axes.get(SIZE), axes.get(SIZE)))
            return matches[0] if matches else None
        return max(matches, key=lambda value: len(set(value.axes) & set(axes)))

    def options(self, axis: str) -> list[str]:
        """All printed options of an axis, in their order."""
        return list(dict.fromkeys(v.axes[axis] for v in self.values if axis in v.axes))


def _matches(printed: Mapping[str, str], axes: Mapping[str, str]) -> bool:
    return all(axes.get(axis, option) == option for axis, option in printed.items())


def _distance(one: str | None, other: str | None) -> float:
    try:
        return abs(math.log(float(one or 1) / float(other or 1)))
    except ValueError:
        return 0.0 if one == other else math.inf


@functools.cache
def read_values(name: str) -> tuple[PaperValue, ...]:
    """The values of a CSV file."""
    path = PAPER / name
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        try:
            return tuple(value for row in rows for value in _row_values(name, row))
        except (KeyError, ValueError, AttributeError) as error:
            raise FileFormatError(
                f"{path}, line {rows.line_num}: expected a row of the paper's values, got: {error}"
            ) from error


def _row_values(name: str, row: Mapping[str, str]) -> Iterator[PaperValue]:
    of_row = {
        key: entry for key, entry in row.items() if ":" not in key and key not in _FACTS and entry
    }
    for column, text in row.items():
        selection, colon, metric = column.rpartition(":")
        if not colon or not text:
            continue
        pairs = [part.split("=") for part in selection.split("&")] if selection else []
        yield PaperValue(
            axes={**of_row, **dict(pairs)},
            metric=_PRIZES.get(metric, metric),
            text=text,
            file=name,
            line=int(row["line"]),
            table=row.get("table", ""),
            column=column,
            reference=row.get("reference") == "yes",
            maximize=metric in _PRIZES,
        )


def recomputed_gaps(name: str) -> Iterator[tuple[PaperValue, float, bool]]:
    """Printed gaps, the gaps of the printed costs, and whether rounding explains the difference."""
    values = read_values(name)
    costs = {(v.line, repr(v.axes)): v for v in values if v.metric == "cost"}
    references: dict[tuple[str, str], PaperValue] = {}
    for value in values:
        key = value.table, value.column.rpartition(":")[0]
        if value.metric == "cost" and value.reference and value.number is not None:
            prior = references.get(key, value)
            assert prior.number is not None
            better = value.number > prior.number if value.maximize else value.number < prior.number
            references[key] = value if better else prior
    for value in values:
        column = value.column.rpartition(":")[0]
        cost = costs.get((value.line, repr(value.axes)))
        best = references.get((value.table, column)) or references.get((value.table, ""))
        if value.metric not in _GAPS or cost is None or best is None or value.number is None:
            continue
        if cost.number is None or best.number is None:
            continue
        sign = -1 if cost.maximize else 1
        gap = sign * 100 * (cost.number / best.number - 1)
        # Each printed number stands for all that are rounded to it.
        slack = (_rounding(cost) + _rounding(best) * cost.number / best.number) / best.number
        printed = value.number
        if cost.maximize:  # some tables print losses of prizes as negative numbers
            gap, printed = abs(gap), abs(printed)
        yield value, gap, abs(gap - printed) <= 100 * slack + _rounding(value) + 1e-9


def _rounding(value: PaperValue) -> float:
    """Largest error of a printed number."""
    return 0.5 * 10.0 ** -len(value.text.partition(".")[2])
