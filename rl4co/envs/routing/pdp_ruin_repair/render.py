"""Picture of a tour of pickups and deliveries, or of a move that takes one order elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import count_of
from rl4co.envs.routing._exchange import draw_tours
from rl4co.envs.routing._map import RouteMap
from rl4co.envs.routing.pdp.render import draw_customers, draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def render(
    state: Mapping[str, Tensor],
    after: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
    legend: bool | None = None,
) -> Figure:
    """Draws the current tour, or a move: edges that stay, are removed, and are added.

    Args:
        state: Single instance: `locs [N, 2]` (depot, pickups, deliveries) and `visited_time [N]`.
        after: Positions after the move `[N]`; None for the current tour alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of orders and the costs.
        numbers: Write node indices; None means up to 30 customers.
        legend: Explain the colours; None means in a new figure.

    Returns:
        The figure.
    """
    chart = RouteMap(state, ax, numbers=numbers, legend=legend)
    customers, size = chart.points[1:], chart.num_customers
    draw_orders(chart.ax, customers)
    cost = draw_tours(chart, state, after)
    draw_customers(chart.ax, customers, names=range(1, size + 1) if chart.numbers else None)
    chart.draw_depots()
    return chart.finish(f"{count_of(size // 2, 'order')} · {cost}", title)
