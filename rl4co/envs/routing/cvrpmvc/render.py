"""Plot of one CVRPMVC instance: the CVRP's, with the number of vehicles in the title."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import as_path, count_of, format_cost, path_cost, split_routes
from rl4co.envs.routing._map import MapOptions, closed_walk
from rl4co.envs.routing.cvrp.render import render as render_cvrp

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
    """Draws the depot, customers that grow with their demand, and coloured routes."""
    if options.get("title") is None:
        options["title"] = _heading(state, actions)
    return render_cvrp(state, actions, ax, **options)


def _heading(state: Mapping[str, Tensor], actions: Tensor | None) -> str:
    """Such as 20 customers · 5 of 6 vehicles · cost 6.100."""
    customers = count_of(len(state["demand"]) - 1, "customer")
    vehicles = count_of(int(state["max_vehicle"]), "vehicle")
    if actions is None:
        return f"{customers} · {vehicles}"
    routes = split_routes(as_path(actions))
    cost = format_cost(path_cost(state, closed_walk(routes)))
    return f"{customers} · {len(routes)} of {vehicles} · cost {cost}"
