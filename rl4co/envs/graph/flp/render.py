"""Figure of one facility location instance, with facilities or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    as_path,
    count_of,
    draw_name,
    draw_nodes,
    format_cost,
    route_colors,
)
from rl4co.envs.routing._map import MapOptions, RouteMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the locations and, if given, the facilities with lines to the customers they serve."""
    costs = state["orig_distances"].detach().cpu().double().numpy()  # [N, N]
    places = state if "locs" in state else {"cost_matrix": state["orig_distances"]}
    chart = RouteMap(places, ax, num_depots=0, **options)
    points, size = chart.points, chart.num_customers
    heading = count_of(size, "location")
    facilities = np.empty(0, np.int64)
    if actions is not None and len(actions):
        facilities = as_path(actions)[: int(state["to_choose"])]
        server = costs[facilities].argmin(axis=0)  # [N], the place of a facility in the list
        server[facilities] = np.arange(len(facilities))
        chart.colors[:] = np.array(route_colors(len(facilities)), dtype=object)[server]
        _draw_assignments(chart, points[facilities][server])
        noun = "facility" if len(facilities) == 1 else "facilities"
        cost = format_cost(float(costs[facilities].min(axis=0).sum()))
        heading += f" · {len(facilities)} {noun} · cost {cost}"
    customers = np.setdiff1d(np.arange(size), facilities)
    names = customers if chart.numbers else None
    draw_nodes(chart.ax, points[customers], color=chart.colors[customers].tolist(), names=names)
    _draw_facilities(chart, facilities)
    return chart.finish(heading)


def _draw_assignments(chart: RouteMap, ends: np.ndarray) -> None:
    """Straight lines from all customers to their facilities `[N, 2]`."""
    from matplotlib.collections import LineCollection

    lines = np.stack([chart.points, ends], axis=1)  # [N, 2, 2]
    colors, width = chart.colors.tolist(), 0.9 * chart.width
    chart.ax.add_collection(
        LineCollection(list(lines), colors=colors, linewidths=width, alpha=0.6, zorder=2)
    )


def _draw_facilities(chart: RouteMap, nodes: np.ndarray) -> None:
    """Squares with a dark rim, above everything else."""
    x, y = chart.points[nodes].T
    chart.ax.scatter(
        x, y, s=190 if chart.numbers else 120, marker="s", c=chart.colors[nodes].tolist(),
        edgecolors=INK, linewidths=1.3, zorder=5,
    )  # fmt: skip
    for node in nodes if chart.numbers else ():
        draw_name(chart.ax, chart.points[node], int(node))
