"""Picture of one skill vehicle routing instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping
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
    """Draws the depot, customers that grow with the skill they need, and coloured routes.

    Args:
        state: Single instance: `locs [N, 2]` with the depot first, or `cost_matrix [N, N]` alone,
            which is laid out by multidimensional scaling; `skills [N]`, `techs [t]` and
            `tech_costs [t]`.
        actions: Visited nodes `[T]`, 0 is the depot; None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of customers and technicians and the cost.
        numbers: Write customer indices; None means up to 30 customers.
        legend: Name the technicians with skill and cost; None means up to 18 in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    customers, num_techs = len(points) - 1, len(state["techs"])
    routes = {} if actions is None else _routes_by_technician(as_path(actions))
    if legend is None:
        legend = ax is None and 0 < len(routes) <= MAX_LEGEND_ROUTES
    if numbers is None:
        numbers = customers <= MAX_NUMBERED_NODES
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    colors, width, palette = [INK] * len(points), line_width(customers), route_colors(num_techs)
    for tech, route in routes.items():
        color = palette[tech]
        draw_path(ax, points[route], color, width=width, label=_describe(state, tech))
        draw_path(ax, points[[0, route[0]]], color, width=width, faint=True)
        draw_path(ax, points[[route[-1], 0]], color, width=width, faint=True)
        draw_arrows(ax, points[route], color, count=3, shortest=0.1 if numbers else 0.05)
        for node in route:
            colors[node] = color

    draw_nodes(
        ax,
        points[1:],
        color=colors[1:],
        sizes=_skill_sizes(state["skills"].detach().cpu().double().numpy()[1:]),
        names=range(1, customers + 1) if numbers else None,
    )
    draw_depot(ax, points[0], label="depot")
    crew = count_of(num_techs, "technician")
    if actions is not None:
        crew = f"{len(routes)} of {crew} · cost {format_cost(_cost(state, routes))}"
    draw_title(ax, f"{count_of(customers, 'customer')} · {crew}" if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def _routes_by_technician(path: np.ndarray) -> dict[int, np.ndarray]:
    """Customers of each technician that sets out: `[T]` → technician → `[n]`."""
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


def _skill_sizes(skills: np.ndarray) -> np.ndarray:
    """Areas that grow linearly with the skill; the smallest still shows its number."""
    share = skills / max(float(skills.max(initial=0.0)), 1e-12)
    return node_size(len(skills)) * (0.8 + share)
