"""Picture of one capacitated vehicle routing instance, with routes or without."""

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
    node_size,
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
    """Draws the depot, customers that grow with their demand, and coloured routes.

    The legs from and to the depot are faint, so that the routes stand out.

    Args:
        state: Single instance: `locs [N, 2]` with the depot first, or `cost_matrix [N, N]` alone,
            which is laid out by multidimensional scaling; `demand [N]`; optionally the units of
            loads, `capacity [1]` and `vehicle_capacity [1]`.
        actions: Visited nodes `[T]`, 0 is the depot; None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of customers and routes and the cost.
        numbers: Write customer indices; None means up to 30 customers.
        legend: Name the routes with their loads; None means up to 18 routes in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    customers = len(points) - 1
    demand = state["demand"].detach().cpu().double().numpy()  # [N]
    routes = [] if actions is None else split_routes(as_path(actions))
    if legend is None:
        legend = ax is None and 0 < len(routes) <= MAX_LEGEND_ROUTES
    if numbers is None:
        numbers = customers <= MAX_NUMBERED_NODES
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    colors, width = [INK] * len(points), line_width(customers)
    for number, (route, color) in enumerate(
        zip(routes, route_colors(len(routes)), strict=True), start=1
    ):
        label = f"route {number}: {_format_load(state, demand[route].sum())}"
        draw_path(ax, points[route], color, width=width, label=label)
        draw_path(ax, points[[0, route[0]]], color, width=width, faint=True)
        draw_path(ax, points[[route[-1], 0]], color, width=width, faint=True)
        draw_arrows(ax, points[route], color, count=2, shortest=0.1 if numbers else 0.05)
        for node in route:
            colors[node] = color

    heading = count_of(customers, "customer")
    if actions is not None:
        walk = np.concatenate([[0], *[np.append(route, 0) for route in routes]])
        cost = format_cost(path_cost(state, walk))
        heading += f" · {count_of(len(routes), 'route')} · cost {cost}"
    draw_nodes(
        ax,
        points[1:],
        color=colors[1:],
        sizes=_demand_sizes(demand[1:]),
        names=range(1, customers + 1) if numbers else None,
    )
    draw_depot(ax, points[0], label="depot")
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def _demand_sizes(demand: np.ndarray) -> np.ndarray:
    """Areas that grow linearly with the demand; the smallest still shows its number."""
    share = demand / max(float(demand.max(initial=0.0)), 1e-12)
    return node_size(len(demand)) * (0.8 + share)


def _format_load(state: Mapping[str, Tensor], load: float) -> str:
    """Load and capacity in original units, such as 28/30; the plain load if they are unknown."""
    capacity, unit = state.get("capacity", None), state.get("vehicle_capacity", None)
    if capacity is None:
        return f"{load:.3g}"
    total = float(capacity.reshape(-1)[0])
    scale = total / (1.0 if unit is None else float(unit.reshape(-1)[0]))
    return f"{round(load * scale, 2):g}/{round(total, 2):g}"
