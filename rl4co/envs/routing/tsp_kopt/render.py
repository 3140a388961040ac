"""Plot of a tour, or of a move that exchanges its edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import count_of
from rl4co.envs.routing._exchange import draw_tours
from rl4co.envs.routing._map import MapOptions, RouteMap

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
    chart = RouteMap(state, ax, num_depots=0, **options)
    cost = draw_tours(chart, state, after)
    chart.draw_customers()
    return chart.finish(f"{count_of(chart.num_customers, 'node')} · {cost}")
