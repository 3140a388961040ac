"""Plot of one capacitated vehicle routing instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rl4co.envs.rendering import as_path, count_of, format_cost, path_cost, split_routes
from rl4co.envs.routing._map import MapOptions, RouteMap, closed_walk, sizes_by

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
    """Draws the depot, customers that grow with their demand, and coloured routes.

    The legs from and to the depot are faint, so that the routes stand out.
    """
    demand = state["demand"].detach().cpu().double().numpy()  # [N]
    routes = [] if actions is None else split_routes(as_path(actions))
    chart = RouteMap(state, ax, num_routes=len(routes), **options)
    for number, (route, color) in enumerate(zip(routes, chart.palette, strict=True), start=1):
        load = _format_load(state, demand[route].sum())
        chart.draw_route(route, color, f"route {number}: {load}")
    chart.draw_customers(sizes_by(demand[1:]))
    chart.draw_depots()
    heading = count_of(chart.num_customers, "customer")
    if actions is not None:
        cost = format_cost(path_cost(state, closed_walk(routes)))
        heading += f" · {count_of(len(routes), 'route')} · cost {cost}"
    return chart.finish(heading)


def _format_load(state: Mapping[str, Tensor], load: float) -> str:
    """Load and capacity in original units, such as 28/30; the plain load if they are unknown."""
    capacity, unit = state.get("capacity", None), state.get("vehicle_capacity", None)
    if capacity is None:
        return f"{load:.3g}"
    total = float(capacity.reshape(-1)[0])
    scale = total / (1.0 if unit is None else float(unit.reshape(-1)[0]))
    return f"{round(load * scale, 2):g}/{round(total, 2):g}"
