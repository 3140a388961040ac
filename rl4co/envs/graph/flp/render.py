"""Figure of one facility location instance, with facilities or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MAX_NUMBERED_NODES,
    as_path,
    count_of,
    draw_name,
    draw_nodes,
    draw_title,
    fit_figure,
    format_cost,
    line_width,
    node_coordinates,
    root_figure,
    route_colors,
    routing_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
) -> Figure:
    """Draws the locations and, if given, the facilities with lines to the customers they serve.

    Args:
        state: Single instance: a state without batch axis. One that is given by a matrix alone is
            laid out by multidimensional scaling.
        actions: Locations with a facility `[T]`, or None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of locations and the cost.
        numbers: Write indices; None means up to 30 locations.

    Returns:
        The figure.
    """
    costs = state["orig_distances"].detach().cpu().double().numpy()  # [N, N]
    places = state if "locs" in state else {"cost_matrix": state["orig_distances"]}
    points, note = node_coordinates(places)
    is_new, size = ax is None, len(points)
    ax = routing_axes(ax, points)
    numbers = size <= MAX_NUMBERED_NODES if numbers is None else numbers
    heading, colors = count_of(size, "location"), np.full(size, INK, dtype=object)
    facilities = np.empty(0, np.int64)
    if actions is not None and len(actions):
        facilities = as_path(actions)[: int(state["to_choose"])]
        server = costs[facilities].argmin(axis=0)  # [N], the place of a facility in the list
        server[facilities] = np.arange(len(facilities))
        colors = np.array(route_colors(len(facilities)), dtype=object)[server]
        _draw_assignments(ax, points, points[facilities][server], colors)
        noun = "facility" if len(facilities) == 1 else "facilities"
        cost = format_cost(float(costs[facilities].min(axis=0).sum()))
        heading += f" · {len(facilities)} {noun} · cost {cost}"
    customers = np.setdiff1d(np.arange(size), facilities)
    names = customers if numbers else None
    draw_nodes(ax, points[customers], color=colors[customers].tolist(), names=names)
    _draw_facilities(ax, points[facilities], colors[facilities], facilities if numbers else None)
    draw_title(ax, heading if title is None else title, note)
    figure = root_figure(ax)
    if is_new:
        fit_figure(figure)
    return figure


def _draw_assignments(ax: Axes, points: np.ndarray, ends: np.ndarray, colors: np.ndarray) -> None:
    """Straight lines from customers `[N, 2]` to their facilities `[N, 2]`."""
    from matplotlib.collections import LineCollection

    width = 0.9 * line_width(len(points))
    lines = np.stack([points, ends], axis=1)  # [N, 2, 2]
    ax.add_collection(
        LineCollection(list(lines), colors=colors.tolist(), linewidths=width, alpha=0.6, zorder=2)
    )
    ax.update_datalim(points)


def _draw_facilities(
    ax: Axes, points: np.ndarray, colors: np.ndarray, names: np.ndarray | None
) -> None:
    """Squares with a dark rim, above everything else."""
    ax.scatter(
        points[:, 0], points[:, 1], s=120 if names is None else 190, marker="s", c=colors.tolist(),
        edgecolors=INK, linewidths=1.3, zorder=5,
    )  # fmt: skip
    for point, name in zip(points, names, strict=True) if names is not None else ():
        draw_name(ax, point, int(name))
