"""Plot of one multi-depot pickup and delivery instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import as_path, count_of, format_cost
from rl4co.envs.routing._map import MapOptions, RouteMap
from rl4co.envs.routing.pdp.render import draw_customers, draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    cost: float | None = None,
    closed: bool = False,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws depots, pickups, deliveries and, if given, one coloured route for each vehicle.

    `cost` is for the title; `closed` adds the ways back to the depots, faintly.
    """
    num_depots = state["capacity"].shape[-1]
    routes = [] if actions is None else _split_routes(as_path(actions), num_depots)
    chart = RouteMap(state, ax, num_routes=len(routes) or None, num_depots=num_depots, **options)
    customers = chart.points[num_depots:]
    if not routes:
        draw_orders(chart.ax, customers)
    for route, color in zip(routes, chart.palette, strict=True):
        arrows = max(2, len(route) // 4)
        chart.draw_walk(route, color, arrows=arrows, label=f"depot {route[0]}")
        if closed:
            chart.draw_legs((int(route[-1]), int(route[0])), color=color)
    draw_customers(
        chart.ax,
        customers,
        colors=chart.colors[num_depots:].tolist() if routes else None,
        names=range(num_depots, len(chart.points)) if chart.numbers else None,
    )
    chart.draw_depots()
    heading = count_of(chart.num_customers // 2, "order")
    if actions is not None:
        heading += f" · {count_of(len(routes), 'route')}"
        heading += "" if cost is None else f" · cost {format_cost(cost)}"
    return chart.finish(heading)


def _split_routes(actions: np.ndarray, num_depots: int) -> list[np.ndarray]:
    """Routes with their depot in front, without empty ones: `[T]` → arrays of nodes."""
    parts = np.split(actions, np.flatnonzero(actions < num_depots))
    return [part for part in parts if part.size > 1]
