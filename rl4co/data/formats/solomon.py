"""Solomon's text format of the VRPTW, also of Gehring and Homberger.

A name, a table VEHICLE (number and capacity) and a table CUSTOMER with a line for each node:
number, x, y, demand, ready time, due date, service time; the depot is the first.

The files do not say how to round. The default is that of the DIMACS challenge (2022) and CVRPLIB:
distances and travel times are cut off after one decimal (`rounding="one_decimal"`). The records
kept by SINTEF use real distances (`rounding="exact"`) and count vehicles first.

The number of vehicles is more than any good solution uses, and no limit here.

Reference: Solomon (1987), https://doi.org/10.1287/opre.35.2.254
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.distances import EdgeCosts, FloatArray
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

_COLUMNS = 7


def looks_like_solomon(source: Source) -> bool:
    """Whether the headings of the tables are there."""
    words = {line.strip().upper() for line in source.lines[:40]}
    return "VEHICLE" in words or "CUSTOMER" in words


def read_solomon(source: Source) -> BenchmarkInstance:
    """An instance from a file in Solomon's format."""
    name = next(line.strip() for line in source.lines if line.strip())
    line, words = _first_row(source, "VEHICLE")
    if len(words) != 2:
        raise source.fault(
            "the number of vehicles and their capacity", repr(" ".join(words)[:60]), CORRECT,
            line=line, section="VEHICLE",
        )  # fmt: skip
    vehicles, capacity = source.numbers(words, line, "VEHICLE")
    table = _customers(source)  # [N, 7]
    return BenchmarkInstance(
        name=name,
        problem="cvrptw",
        edge_costs=EdgeCosts.of_points(table[:, 1:3], rounding="one_decimal"),
        coordinates=table[:, 1:3],
        demand=table[:, 3],
        capacity=capacity,
        time_windows=table[:, 4:6],
        service_times=table[:, 6],
        nominal_vehicles=int(vehicles),
        labels=tuple(str(int(number)) for number in table[:, 0]),
        source=source.path,
    )


def _heading(source: Source, heading: str) -> int:
    """Number of the line with a heading."""
    for number, line in enumerate(source.lines, start=1):
        if line.strip().upper() == heading:
            return number
    raise source.fault(f"a table {heading}", "none", TRUNCATED)


def _rows(source: Source, heading: str) -> list[tuple[int, list[str]]]:
    """Lines after a heading and the names of the columns, with their numbers."""
    start = _heading(source, heading)
    numbered = list(enumerate(source.lines, start=1))[start:]
    rows = [(number, line.split()) for number, line in numbered if line.strip()]
    return rows[1:]


def _first_row(source: Source, heading: str) -> tuple[int, list[str]]:
    rows = _rows(source, heading)
    if not rows:
        raise source.fault("a line of numbers", "nothing", TRUNCATED, section=heading)
    return rows[0]


def _customers(source: Source) -> FloatArray:
    rows: list[list[float]] = []
    for line, words in _rows(source, "CUSTOMER"):
        if len(words) != _COLUMNS:
            raise source.fault(
                f"{_COLUMNS} numbers (node, x, y, demand, ready time, due date, service time)",
                repr(" ".join(words)[:60]), CORRECT, line=line, section="CUSTOMER",
            )  # fmt: skip
        values = source.numbers(words, line, "CUSTOMER")
        if values[0] != len(rows):
            raise source.fault(
                f"node {len(rows)}", f"node {words[0]}", "number nodes 0 (the depot), 1, 2, ...",
                line=line, section="CUSTOMER",
            )  # fmt: skip
        rows.append(values)
    if len(rows) < 2:
        raise source.fault(
            "a depot and customers", f"{len(rows)} lines", TRUNCATED, section="CUSTOMER"
        )
    return np.array(rows)
