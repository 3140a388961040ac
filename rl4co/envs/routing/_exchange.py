"""Plots of moves: edges of the tour before and after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import ACCENT, INK, ROUTE_COLORS, format_cost, path_cost
from rl4co.envs.routing._map import RouteMap
from rl4co.envs.successors import tour_from_order

if TYPE_CHECKING:
    from torch import Tensor

REMOVED, ADDED = ACCENT, "#2a9d5c"
NUM_ARROWS = 12


def draw_tours(chart: RouteMap, state: Mapping[str, Tensor], after: Tensor | None) -> str:
    """Draws the current tour, and what a move does to it; returns the cost for the title.

    Args:
        chart: Map of the instance.
        state: Single instance with `visited_time [N]`.
        after: Positions after the move `[N]`; None: no move.
    """
    now = _closed(state["visited_time"])
    cost = format_cost(path_cost(state, now))
    if after is None:
        chart.draw_walk(now, ROUTE_COLORS[0], arrows=NUM_ARROWS)
        chart.colors[:] = INK
        return f"cost {cost}"
    then = _closed(after)
    old, new = _edges(now), _edges(then)
    for edge in sorted(old & new):
        _draw(chart, edge, ROUTE_COLORS[0], 1.0, "-", None)
    _draw_all(chart, old - new, REMOVED, ":", "removed")
    _draw_all(chart, new - old, ADDED, "-", "added")
    return f"cost {cost} → {format_cost(path_cost(state, then))}"


def _draw_all(
    chart: RouteMap, edges: set[tuple[int, int]], color: str, style: str, label: str
) -> None:
    for number, edge in enumerate(sorted(edges)):
        _draw(chart, edge, color, 1.6, style, label if number == 0 else None)


def _draw(
    chart: RouteMap, edge: tuple[int, int], color: str, bold: float, style: str, label: str | None
) -> None:
    x, y = chart.points[list(edge)].T
    width = bold * chart.width
    chart.ax.plot(x, y, style, color=color, linewidth=width, label=label, zorder=2 + bold)


def _closed(order: Tensor) -> np.ndarray:
    tour = tour_from_order(order).numpy()
    return np.append(tour, tour[0])


def _edges(walk: np.ndarray) -> set[tuple[int, int]]:
    """Edges without direction, so that reversing a path changes only its end edges."""
    return {
        (min(a, b), max(a, b)) for a, b in zip(walk[:-1].tolist(), walk[1:].tolist(), strict=True)
    }
