"""Plot of one skill vehicle routing instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import as_path, count_of, format_cost, path_cost, route_colors
from rl4co.envs.routing._map import MapOptions, RouteMap, sizes_by

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
    """Draws the depot, customers that grow with the skill they need, and coloured routes."""
    num_techs = len(state["techs"])
    routes = {} if actions is None else _routes_by_technician(as_path(actions))
    chart = RouteMap(state, ax, num_routes=len(routes), **options)
    palette = route_colors(num_techs)
    for tech, route in routes.items():
        chart.draw_route(route, palette[tech], _describe(state, tech), arrows=3)
    chart.draw_customers(sizes_by(state["skills"].detach().cpu().double().numpy()[1:]))
    chart.draw_depots()
    technicians = count_of(num_techs, "technician")
    if actions is not None:
        technicians = f"{len(routes)} of {technicians} · cost {format_cost(_cost(state, routes))}"
    return chart.finish(f"{count_of(chart.num_customers, 'customer')} · {technicians}")


def _routes_by_technician(path: np.ndarray) -> dict[int, np.ndarray]:
    """Customers of each technician with a route: `[T]` → technician → `[n]`."""
    parts = np.split(path, np.flatnonzero(path == 0))
    routes = {tech: part[part != 0] for tech, part in enumerate(parts)}
    return {tech: route for tech, route in routes.items() if route.size}


def _cost(state: Mapping[str, Tensor], routes: Mapping[int, np.ndarray]) -> float:
    """Lengths of the routes times the costs of their technicians."""
    rates = state["tech_costs"].detach().cpu().double().tolist()
    return sum(rates[tech] * path_cost(state, [0, *route, 0]) for tech, route in routes.items())


def _describe(state: Mapping[str, Tensor], tech: int) -> str:
    """Such as technician 2, skill 6.1, cost 2, in two lines."""
    skill, cost = float(state["techs"][tech]), float(state["tech_costs"][tech])
    return f"technician {tech + 1}\nskill {skill:.3g}, cost {cost:.3g}"
