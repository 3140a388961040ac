"""Plot of one travelling salesman instance, with a tour or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    ACCENT,
    ROUTE_COLORS,
    as_path,
    count_of,
    draw_nodes,
    format_cost,
    path_cost,
)
from rl4co.envs.routing._map import MapOptions, RouteMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack

NUM_ARROWS = 12


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the nodes and, if given, the tour; its first node has the accent colour.

    A complete tour is closed, a partial one is drawn as a path.
    """
    chart = RouteMap(state, ax, num_depots=0, **options)
    size, order = chart.num_customers, np.arange(chart.num_customers)
    colors = chart.colors.copy()
    heading = count_of(size, "node")
    if actions is not None and len(actions):
        path = as_path(actions)
        closed = len(path) == size
        walk = np.append(path, path[0]) if closed else path
        chart.draw_walk(walk, ROUTE_COLORS[0], arrows=NUM_ARROWS)
        order = np.append(order[order != path[0]], path[0])  # the first node on top
        colors[-1] = ACCENT
        cost = format_cost(path_cost(state, walk))
        heading += f" · cost {cost}" if closed else f" · {len(path)} visited · cost {cost}"
    names = order if chart.numbers else None
    draw_nodes(chart.ax, chart.points[order], color=colors.tolist(), names=names)
    return chart.finish(heading)
