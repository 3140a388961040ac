"""Plot of one multiple travelling salesman instance, with tours or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import as_path, count_of, format_cost, path_cost, split_routes
from rl4co.envs.routing._map import MapOptions, RouteMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the depot, the customers and one closed tour per agent, the longest one bold."""
    routes = [] if actions is None else split_routes(as_path(actions))
    chart = RouteMap(state, ax, num_routes=len(routes), **options)
    walks = [np.concatenate([[0], route, [0]]) for route in routes]
    lengths = [path_cost(state, walk) for walk in walks]
    for number, (walk, color) in enumerate(zip(walks, chart.palette, strict=True)):
        label = f"agent {number + 1}: {format_cost(lengths[number])}"
        bold = 1.6 if lengths[number] == max(lengths) else 1.0
        chart.draw_walk(walk, color, arrows=3, label=label, bold=bold)
    chart.draw_customers()
    chart.draw_depots()
    agents = count_of(int(state["num_agents"]), "agent")
    heading = f"{count_of(chart.num_customers, 'customer')} · {agents}"
    if lengths:
        longest, total = format_cost(max(lengths)), format_cost(sum(lengths))
        heading += f" · longest tour {longest} · total {total}"
    return chart.finish(heading)
