"""Picture of one multiple travelling salesman instance, with tours or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MAX_LEGEND_ROUTES,
    MAX_NUMBERED_NODES,
    as_path,
    count_of,
    draw_arrows,
    draw_depot,
    draw_legend,
    draw_nodes,
    draw_path,
    draw_title,
    format_cost,
    line_width,
    node_coordinates,
    path_cost,
    root_figure,
    route_colors,
    routing_axes,
    split_routes,
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
    legend: bool | None = None,
) -> Figure:
    """Draws the depot, the customers and one closed tour per agent, the longest one bold.

    Args:
        state: Single instance: `locs [N, 2]` with the depot first, or `cost_matrix [N, N]` alone,
            which is laid out by multidimensional scaling; `num_agents []`.
        actions: Visited nodes `[T]`, 0 is the depot; None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the numbers of customers and agents, the length of
            the longest tour and of all together.
        numbers: Write customer indices; None means up to 30 customers.
        legend: Name the agents with their lengths; None means up to 18 agents in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    customers = len(points) - 1
    routes = [] if actions is None else split_routes(as_path(actions))
    if legend is None:
        legend = ax is None and 0 < len(routes) <= MAX_LEGEND_ROUTES
    if numbers is None:
        numbers = customers <= MAX_NUMBERED_NODES
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    walks = [np.concatenate([[0], route, [0]]) for route in routes]
    lengths = [path_cost(state, walk) for walk in walks]
    colors, width = [INK] * len(points), line_width(customers)
    for number, (walk, color) in enumerate(zip(walks, route_colors(len(walks)), strict=True)):
        is_longest = lengths[number] == max(lengths)
        label = f"agent {number + 1}: {format_cost(lengths[number])}"
        draw_path(ax, points[walk], color, width=width * (1.6 if is_longest else 1.0), label=label)
        draw_arrows(ax, points[walk], color, count=3, shortest=0.1 if numbers else 0.05)
        for node in walk:
            colors[node] = color

    heading = f"{count_of(customers, 'customer')} · {count_of(int(state['num_agents']), 'agent')}"
    if lengths:
        longest, total = format_cost(max(lengths)), format_cost(sum(lengths))
        heading += f" · longest tour {longest} · total {total}"
    names = range(1, customers + 1) if numbers else None
    draw_nodes(ax, points[1:], color=colors[1:], names=names)
    draw_depot(ax, points[0], label="depot")
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)
