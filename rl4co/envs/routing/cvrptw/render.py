"""Plot of one instance with time windows: a map, and a timetable of its routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from rl4co.envs.rendering import (
    FAINT,
    INK,
    MUTED,
    as_path,
    fit_figure,
    route_colors,
    split_routes,
)
from rl4co.envs.routing._map import MapOptions
from rl4co.envs.routing.cvrp.render import render as render_map
from rl4co.envs.routing.cvrptw.schedule import leg_times, service_starts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack

# More rows than this are too low for a number each.
MAX_NAMED_ROWS = 45


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    timetable: bool = True,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the map of the CVRP and, in a new figure, the `timetable`.

    The timetable has one row per customer, in the order of the visits (by time window if there are
    none): the window as a pale bar, the service as a dark one, and the way of the vehicle through
    the rows as a line that is dotted while it waits.
    """
    figure = render_map(state, actions, ax, **options)
    if ax is None and timetable:
        width, height = figure.get_size_inches()
        beside = 0.8 * height
        figure.set_size_inches(width + beside, height)
        grid = figure.add_gridspec(1, 2, width_ratios=(width, beside))
        figure.axes[0].set_subplotspec(grid[0])
        draw_timetable(figure.add_subplot(grid[1]), state, actions)
        fit_figure(figure)
    return figure


def draw_timetable(ax: Axes, state: Mapping[str, Tensor], actions: Tensor | None = None) -> None:
    """Windows of all customers and, with `actions [T]`, when they are visited.

    Args:
        ax: Axes to draw on.
        state: Single instance, see :func:`render`.
        actions: Visited nodes, or None.
    """
    state = {key: value.detach().cpu() for key, value in state.items()}
    windows = state["time_windows"].double().numpy()  # [N, 2]
    routes = [] if actions is None else split_routes(as_path(actions))
    if not routes:
        order = np.lexsort((windows[1:, 1], windows[1:, 0])) + 1
        _draw_windows(ax, windows[order], np.arange(len(order)), INK)
        _style_axes(ax, windows[0], dict(enumerate(order.tolist())), depot_rows=[])
        return
    rows: dict[int, int] = {}
    depot_rows = [0]  # one between routes
    for route, color in zip(routes, route_colors(len(routes)), strict=True):
        route_rows = depot_rows[-1] + 1 + np.arange(len(route))
        _draw_windows(ax, windows[route], route_rows, color)
        _draw_visits(ax, state, route, route_rows, color)
        rows.update(zip(route_rows.tolist(), route.tolist(), strict=True))
        depot_rows.append(int(route_rows[-1]) + 1)
    _style_axes(ax, windows[0], rows, depot_rows)


def _draw_windows(ax: Axes, windows: np.ndarray, rows: np.ndarray, color: str) -> None:
    ax.barh(
        rows, windows[:, 1] - windows[:, 0], left=windows[:, 0], height=0.72, color=color,
        alpha=0.22, linewidth=0, zorder=1,
    )  # fmt: skip


def _draw_visits(
    ax: Axes, state: Mapping[str, Tensor], route: np.ndarray, rows: np.ndarray, color: str
) -> None:
    """One vehicle: driving, waiting and serving, from one row of the depot to the next."""
    stops = torch.from_numpy(np.append(route, 0))
    begin = service_starts(state, stops).numpy()  # [T + 1]
    service = np.append(state["durations"].double().numpy()[route], 0.0)
    leave = np.insert((begin + service)[:-1], 0, float(state["time_windows"][0, 0]))
    arrive = leave + leg_times(state, stops).numpy()
    levels = np.concatenate([[rows[0] - 1], rows, [rows[-1] + 1]])
    for stop in range(len(stops)):
        here, there = levels[stop], levels[stop + 1]
        ax.plot((leave[stop], arrive[stop]), (here, there), color=color, linewidth=1.0, zorder=3)
        wait = (arrive[stop], begin[stop])
        ax.plot(wait, (there, there), color=color, linewidth=1.0, linestyle=":", zorder=3)
    ax.barh(rows, service[:-1], left=begin[:-1], height=0.72, color=color, linewidth=0, zorder=2)
    brief = service[:-1] == 0  # no bar to see
    ax.scatter(
        begin[:-1][brief], rows[brief], s=14, c=color, edgecolors="white", linewidths=0.5, zorder=4
    )


def _style_axes(ax: Axes, day: np.ndarray, rows: Mapping[int, int], depot_rows: list[int]) -> None:
    """Time to the right, rows downwards, the hours of the depot as borders."""
    margin = 0.02 * float(day[1] - day[0])
    ax.set_xlim(day[0] - margin, day[1] + margin)
    ax.set_ylim(max([*rows, *depot_rows]) + 0.8, -0.8)
    named = rows if len(rows) <= MAX_NAMED_ROWS else {}
    ax.set_yticks(list(named), [str(node) for node in named.values()])
    ax.hlines(depot_rows, *day, color=FAINT, linewidth=0.8, zorder=0)
    for hour in day:
        ax.axvline(float(hour), color=FAINT, linewidth=0.8, zorder=0)
    for side in ("left", "right", "top"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(FAINT)
    ax.tick_params(colors=MUTED, labelsize=7, length=2.5, width=0.6, color=FAINT)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("time", color=MUTED, fontsize=8)
    ax.set_title("timetable", color=INK, fontsize=10.5, pad=7)
