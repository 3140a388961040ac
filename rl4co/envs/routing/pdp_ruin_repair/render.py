"""Plot of a tour of pickups and deliveries, or of a move of one order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import count_of
from rl4co.envs.routing._exchange import draw_tours
from rl4co.envs.routing._map import MapOptions, RouteMap
from rl4co.envs.routing.pdp.render import draw_customers, draw_orders

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack


def render(
    state: Mapping[str, Tensor],
    after: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the current tour, or a move: edges that stay, are removed, and are added."""
    chart = RouteMap(state, ax, **options)
    customers, size = chart.points[1:], chart.num_customers
    draw_orders(chart.ax, customers)
    cost = draw_tours(chart, state, after)
    draw_customers(chart.ax, customers, names=range(1, size + 1) if chart.numbers else None)
    chart.draw_depots()
    return chart.finish(f"{count_of(size // 2, 'order')} · {cost}")
