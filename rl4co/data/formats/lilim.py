"""Li and Lim's text format of the PDPTW: pickups and deliveries with time windows.

A line `vehicles capacity speed` (the speed is not used), then a line for each node: number, x, y,
demand (negative at deliveries), ready time, due date, service time, and the partner: its pickup (0
at pickups), its delivery (0 at deliveries). Distances are real-valued. The number of vehicles is no
limit, as in Solomon's files.

There is no environment for this problem: costs and the check of solutions are available.

Reference: Li and Lim (2001), https://www.sintef.no/projectweb/top/pdptw
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.distances import EdgeCosts, FloatArray, IntArray
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.numbers import number_rows, row_widths
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

_COLUMNS = 9


def looks_like_lilim(source: Source) -> bool:
    """Whether the first lines have three, nine and nine numbers."""
    return row_widths(source) == (3, _COLUMNS, _COLUMNS)


def read_lilim(source: Source) -> BenchmarkInstance:
    """An instance from a file in Li and Lim's format."""
    (_, head), *rows = number_rows(source)
    for position, (line, values) in enumerate(rows):
        if len(values) != _COLUMNS:
            raise source.fault(f"{_COLUMNS} numbers", f"{len(values)}", TRUNCATED, line=line)
        if values[0] != position:
            raise source.fault(
                f"node {position}", f"node {values[0]:g}",
                "number nodes 0 (the depot), 1, 2, ...", line=line,
            )  # fmt: skip
    table = np.array([values for _, values in rows])  # [N, 9]
    return BenchmarkInstance(
        name=source.name,
        problem="pdptw",
        edge_costs=EdgeCosts.of_points(table[:, 1:3]),
        coordinates=table[:, 1:3],
        demand=table[:, 3],
        capacity=head[1],
        time_windows=table[:, 4:6],
        service_times=table[:, 6],
        pairs=_pairs(source, table, rows[0][0]),
        nominal_vehicles=int(head[0]),
        labels=tuple(str(node) for node in range(len(table))),
        source=source.path,
    )


def _pairs(source: Source, table: FloatArray, first_line: int) -> IntArray:
    pickup_of, delivery_of = table[:, 7].astype(np.int64), table[:, 8].astype(np.int64)
    nodes = np.arange(len(table))
    pickups = nodes[(delivery_of > 0) & (nodes > 0)]
    deliveries = delivery_of[pickups]
    inside = deliveries < len(table)
    back = np.where(inside, pickup_of[np.where(inside, deliveries, 0)], -1)
    wrong = pickups[back != pickups]
    unpaired = set(range(1, len(table))) - {*pickups.tolist(), *deliveries.tolist()}
    if len(wrong) or unpaired:
        node = int(wrong[0]) if len(wrong) else min(unpaired)
        raise source.fault(
            "every customer as pickup or delivery of one partner",
            f"node {node} without a partner that names it",
            CORRECT,
            line=first_line + node,
        )
    return np.stack([pickups, deliveries], axis=1)
