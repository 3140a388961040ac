"""Picture of a tour, or of a move that exchanges its edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import count_of
from rl4co.envs.routing._exchange import draw_tours
from rl4co.envs.routing._map import RouteMap

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
        state: Single instance: `locs [N, 2]` and `visited_time [N]`.
        after: Positions after the move `[N]`; None for the current tour alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of nodes and the costs.
        numbers: Write node indices; None means up to 30 nodes.
        legend: Explain the colours; None means in a new figure, if there is a move.

    Returns:
        The figure.
    """
    legend = ax is None and after is not None if legend is None else legend
    chart = RouteMap(state, ax, numbers=numbers, legend=legend, num_depots=0)
    cost = draw_tours(chart, state, after)
    chart.draw_customers()
    return chart.finish(f"{count_of(chart.num_customers, 'node')} · {cost}", title)
