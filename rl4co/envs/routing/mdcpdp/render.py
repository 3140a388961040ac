"""Picture of one multi-depot pickup and delivery instance, with routes or without."""

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
    draw_path,
    draw_title,
    format_cost,
    line_width,
    node_coordinates,
    root_figure,
    route_colors,
    routing_axes,
)
from rl4co.envs.routing.pdp.render import draw_customers, draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    cost: float | None = None,
    closed: bool = False,
    title: str | None = None,
    numbers: bool | None = None,
    legend: bool | None = None,
) -> Figure:
    """Draws depots, pickups, deliveries and, if given, one coloured route for each vehicle.

    Args:
        state: Single instance: `locs [N, 2]` (depots, pickups, deliveries), or `cost_matrix [N, N]`
            alone, which is laid out by multidimensional scaling; `capacity [k]`.
        actions: Visited nodes `[T]`, those below k are depots; None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        cost: Cost to write into the title.
        closed: Draw the ways back to the depots, faintly.
        title: Replaces the title, which gives the number of orders and routes and the cost.
        numbers: Write customer indices; None means up to 30 customers.
        legend: Name the routes; None means up to 18 routes in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    num_depots = state["capacity"].shape[-1]
    customers = points[num_depots:]
    routes = [] if actions is None else _split_routes(as_path(actions), num_depots)
    if legend is None:
        legend = ax is None and len(routes) <= MAX_LEGEND_ROUTES
    numbers = len(customers) <= MAX_NUMBERED_NODES if numbers is None else numbers
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    if not routes:
        draw_orders(ax, customers)
    colors, width = [INK] * len(points), line_width(len(customers))
    for route, color in zip(routes, route_colors(len(routes)), strict=True):
        draw_path(ax, points[route], color, width=width, label=f"depot {route[0]}")
        arrows = max(2, len(route) // 4)
        draw_arrows(ax, points[route], color, count=arrows, shortest=0.1 if numbers else 0.05)
        if closed:
            draw_path(ax, points[route[[-1, 0]]], color, width=width, faint=True)
        for node in route:
            colors[node] = color

    heading = count_of(len(customers) // 2, "order")
    if actions is not None:
        heading += f" · {count_of(len(routes), 'route')}"
        heading += "" if cost is None else f" · cost {format_cost(cost)}"
    draw_customers(
        ax,
        customers,
        colors=colors[num_depots:] if routes else None,
        names=range(num_depots, len(points)) if numbers else None,
    )
    draw_depot(ax, points[:num_depots], label="depot")
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def _split_routes(actions: np.ndarray, num_depots: int) -> list[np.ndarray]:
    """Routes with their depot in front, without empty ones: `[T]` → arrays of nodes."""
    parts = np.split(actions, np.flatnonzero(actions < num_depots))
    return [part for part in parts if part.size > 1]
