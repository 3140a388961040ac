"""Plot of one shortest Hamiltonian path instance, with a path or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    ACCENT,
    INK,
    ROUTE_COLORS,
    as_path,
    count_of,
    draw_name,
    draw_nodes,
    format_cost,
    node_size,
    path_cost,
)
from rl4co.envs.routing._map import MapOptions, RouteMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack

START_COLOR = ROUTE_COLORS[2]
END_COLOR = ACCENT
NUM_ARROWS = 12


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the nodes with both ends marked and, if given, the open path."""
    chart = RouteMap(state, ax, num_depots=0, **options)
    size = chart.num_customers
    heading = count_of(size, "node")
    if actions is not None and len(actions):
        path = as_path(actions)
        chart.draw_walk(path, ROUTE_COLORS[0], arrows=NUM_ARROWS)
        visited = "" if len(path) == size else f" · {len(path)} visited"
        heading += f"{visited} · cost {format_cost(path_cost(state, path))}"
    names = np.arange(1, size - 1) if chart.numbers else None
    draw_nodes(chart.ax, chart.points[1:-1], names=names, color=INK)
    if size > 1:  # otherwise one node is both
        _draw_end(chart, 0, START_COLOR, "o", "start")
    _draw_end(chart, size - 1, END_COLOR, "s", "end")
    return chart.finish(heading)


def _draw_end(chart: RouteMap, node: int, color: str, marker: str, label: str) -> None:
    """One end of the path, larger than the nodes in between and above them."""
    area = node_size(1) if chart.numbers else 70.0
    x, y = chart.points[node]
    chart.ax.scatter(
        x, y, s=1.5 * area, marker=marker, c=color, edgecolors="white", linewidths=1.1, zorder=5,
        label=label,
    )  # fmt: skip
    if chart.numbers:
        draw_name(chart.ax, (x, y), node)
