"""Picture of one shortest Hamiltonian path instance, with a path or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    ACCENT,
    INK,
    MAX_NUMBERED_NODES,
    ROUTE_COLORS,
    as_path,
    count_of,
    draw_arrows,
    draw_legend,
    draw_nodes,
    draw_path,
    draw_title,
    format_cost,
    line_width,
    node_coordinates,
    node_size,
    path_cost,
    root_figure,
    routing_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

START_COLOR = ROUTE_COLORS[2]
END_COLOR = ACCENT
NUM_ARROWS = 12


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
    legend: bool | None = None,
) -> Figure:
    """Draws the nodes with both ends marked and, if given, the open path.

    Args:
        state: Single instance: `locs [N, 2]`, or `cost_matrix [N, N]` alone, which is laid out by
            multidimensional scaling.
        actions: Visited nodes `[T]`, or None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of nodes and the cost.
        numbers: Write node indices; None means up to 30 nodes.
        legend: Name the two ends; None means in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    size = len(points)
    legend = ax is None if legend is None else legend
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)
    if numbers is None:
        numbers = size <= MAX_NUMBERED_NODES
    heading = count_of(size, "node")
    if actions is not None and len(actions):
        path = as_path(actions)
        draw_path(ax, points[path], ROUTE_COLORS[0], width=line_width(size))
        draw_arrows(
            ax,
            points[path],
            ROUTE_COLORS[0],
            count=NUM_ARROWS,
            shortest=0.12 if numbers else 0.06,  # numbered discs hide more of a leg
        )
        visited = "" if len(path) == size else f" · {len(path)} visited"
        heading += f"{visited} · cost {format_cost(path_cost(state, path))}"
    names = np.arange(size) if numbers else None
    draw_nodes(ax, points[1:-1], names=None if names is None else names[1:-1], color=INK)
    if size > 1:  # otherwise one node is both
        _draw_end(ax, points[0], START_COLOR, "o", "start", None if names is None else 0)
    _draw_end(ax, points[-1], END_COLOR, "s", "end", None if names is None else size - 1)
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def _draw_end(
    ax: Axes, point: np.ndarray, color: str, marker: str, label: str, name: int | None
) -> None:
    """One end of the path, larger than the nodes in between and above them."""
    area = node_size(1) if name is not None else 70.0
    ax.scatter(
        point[0], point[1], s=1.5 * area, marker=marker, c=color, edgecolors="white",
        linewidths=1.1, zorder=5, label=label,
    )  # fmt: skip
    if name is not None:
        ax.annotate(
            str(name), (point[0], point[1]), color="white", fontsize=6.5, ha="center",
            va="center_baseline", fontweight="bold", zorder=6,
        )  # fmt: skip
