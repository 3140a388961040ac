"""Picture of one split delivery instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    A customer of several routes is a pie of what each of them delivers. The legs from and to the
    depot are faint, so that the routes stand out.

    Args:
        state: Single instance: `locs [N, 2]` with the depot first, or `cost_matrix [N, N]` alone,
            which is laid out by multidimensional scaling; `demand [N]`, `capacity [1]` and
            `vehicle_capacity [1]`.
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
    unit, total = (float(state[key].reshape(-1)[0]) for key in ("vehicle_capacity", "capacity"))
    routes = [] if actions is None else split_routes(as_path(actions))
    delivered = deliveries(demand, unit, routes)
    if legend is None:
        legend = ax is None and 0 < len(routes) <= MAX_LEGEND_ROUTES
    if numbers is None:
        numbers = customers <= MAX_NUMBERED_NODES
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    colors, palette = [INK] * len(points), route_colors(len(routes))
    for number, (route, color) in enumerate(zip(routes, palette, strict=True)):
        load = round(delivered[number].sum() * total / unit, 2)
        label = f"route {number + 1}: {load:g}/{round(total, 2):g}"
        _draw_route(ax, points, route, color, customers, label, 0.1 if numbers else 0.05)
        for node in route:
            colors[node] = color

    heading = count_of(customers, "customer")
    if actions is not None:
        walk = np.concatenate([[0], *[np.append(route, 0) for route in routes]]).astype(np.int64)
        shared = int(((delivered > 0).sum(0) > 1).sum())
        heading += f" ({shared} shared) · {count_of(len(routes), 'route')}"
        heading += f" · cost {format_cost(path_cost(state, walk))}"
    sizes = node_size(customers) * (0.8 + demand[1:] / max(float(demand.max()), 1e-12))
    names = range(1, customers + 1) if numbers else None
    draw_nodes(ax, points[1:], color=colors[1:], sizes=sizes, names=names)
    for node in range(1, len(points)):
        _draw_shares(ax, points[node], sizes[node - 1], delivered[:, node], palette)
    draw_depot(ax, points[0], label="depot")
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def deliveries(demand: np.ndarray, capacity: float, routes: Sequence[np.ndarray]) -> np.ndarray:
    """What each route delivers to each node, as much as it can at every visit: `[R, N]`."""
    needs = demand.copy()
    delivered = np.zeros((len(routes), len(demand)))
    for number, route in enumerate(routes):
        room = capacity
        for node in route:
            amount = min(needs[node], room)
            needs[node], room = needs[node] - amount, room - amount
            # Remainders of rounding are no deliveries.
            delivered[number, node] += amount if amount > 1e-5 * capacity else 0.0
    return delivered


def _draw_route(
    ax: Axes,
    points: np.ndarray,
    route: np.ndarray,
    color: str,
    customers: int,
    label: str,
    shortest: float,
) -> None:
    width = line_width(customers)
    draw_path(ax, points[route], color, width=width, label=label)
    draw_path(ax, points[[0, route[0]]], color, width=width, faint=True)
    draw_path(ax, points[[route[-1], 0]], color, width=width, faint=True)
    draw_arrows(ax, points[route], color, count=2, shortest=shortest)


def _draw_shares(
    ax: Axes, point: np.ndarray, size: float, shares: np.ndarray, colors: Sequence[str]
) -> None:
    """A pie of the deliveries `shares [R]`, if there are several."""
    from matplotlib.path import Path

    involved = np.flatnonzero(shares)
    if len(involved) < 2:
        return
    borders = np.concatenate([[0.0], np.cumsum(shares[involved])]) / shares.sum()
    for number, start, stop in zip(involved.tolist(), borders[:-1], borders[1:], strict=True):
        angles = np.pi / 2 - 2 * np.pi * np.linspace(start, stop, 40)  # clockwise from the top
        arc = np.column_stack([np.cos(angles), np.sin(angles)])  # [40, 2]
        outline = np.concatenate([[[0.0, 0.0]], arc, [[0.0, 0.0]]])
        # matplotlib scales a marker by its largest coordinate.
        area = 0.8 * size * float(np.abs(outline).max()) ** 2
        ax.scatter(
            point[0], point[1], s=area, marker=Path(outline), c=colors[number], linewidths=0,
            zorder=5,
        )  # fmt: skip
