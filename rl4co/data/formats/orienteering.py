"""Orienteering problems of Tsiligirides and Chao: a line `Tmax 1`, then lines `x y score`.

The first point is the start and the second one the end. Together they are the depot: it is left at
the one and reached at the other, so costs from and to the depot differ. Distances are real-valued.

References: Tsiligirides (1984), Chao et al. (1996); https://www.mech.kuleuven.be/en/cib/op
"""

from __future__ import annotations

import numpy as np

from rl4co.data.formats.distances import EdgeCosts, FloatArray
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.numbers import NumberRows, number_rows, row_widths
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source


def looks_like_orienteering(source: Source) -> bool:
    """Whether the first lines have two, three and three numbers."""
    return row_widths(source) == (2, 3, 3)


def read_orienteering(source: Source) -> BenchmarkInstance:
    """An instance from a text file with the start and the end in front."""
    (line, head), *node_rows = number_rows(source)
    if head[1] != 1:
        raise source.fault(
            "one path (Tmax 1)", f"{head[1]:g}", "team orienteering is not supported", line=line
        )
    points = _points(source, node_rows)  # [M, 3]
    nodes = np.array([0, *range(2, len(points))])
    arrival = np.array([1, *range(2, len(points))])
    xy = points[:, :2]
    if np.array_equal(xy[0], xy[1]):
        arrival = nodes
    return BenchmarkInstance(
        name=source.name,
        problem="op",
        edge_costs=EdgeCosts.of_points(xy).take(nodes, arrival),
        coordinates=xy[nodes],
        prizes=points[nodes, 2],
        max_length=head[0],
        labels=tuple(str(node + 1) for node in nodes),
        source=source.path,
    )


def _points(source: Source, rows: NumberRows) -> FloatArray:
    for line, values in rows:
        if len(values) != 3:
            raise source.fault("x, y and score", f"{len(values)} numbers", CORRECT, line=line)
    if len(rows) < 3:
        raise source.fault("a start, an end and other points", f"{len(rows)} points", TRUNCATED)
    return np.array([values for _, values in rows])
