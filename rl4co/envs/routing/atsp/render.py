"""Plot of one asymmetric travelling salesman instance, with a tour or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import ACCENT, FAINT, INK, MAX_NUMBERED_NODES, MUTED, as_path, fit_figure
from rl4co.envs.routing._map import MapOptions
from rl4co.envs.routing.tsp.render import render as render_tour

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
    """Draws the tour on the left and the matrix of costs on the right.

    Rows and columns of the matrix are in the order of the tour, so its legs are the cells right of
    the diagonal and the one in the lower left corner: they are framed. On given axes there is the
    tour alone.
    """
    figure = render_tour(state, actions, ax, **options)
    if ax is not None:
        return figure
    width, height = figure.get_size_inches()
    figure.set_size_inches(2 * width, height)
    grid = figure.add_gridspec(1, 2)
    figure.axes[0].set_subplotspec(grid[0])
    costs = state["cost_matrix"].detach().cpu().double().numpy()  # [N, N]
    numbers = options.get("numbers")
    if numbers is None:
        numbers = len(costs) <= MAX_NUMBERED_NODES
    path = np.empty(0, np.int64) if actions is None else as_path(actions)
    _draw_matrix(figure.add_subplot(grid[1]), costs, path, numbers)
    fit_figure(figure)
    return figure


def _draw_matrix(ax: Axes, costs: np.ndarray, path: np.ndarray, numbers: bool) -> None:
    """Costs from row to column, nodes of the path first and in its order."""
    from matplotlib.colors import LinearSegmentedColormap

    size = len(costs)
    order = np.concatenate([path, np.setdiff1d(np.arange(size), path)])
    shown = np.where(np.eye(size, dtype=bool), np.nan, costs)[np.ix_(order, order)]
    shades = LinearSegmentedColormap.from_list("costs", ["#eaf1f8", "#1f6fb4", "#12253f"])
    image = ax.imshow(shown, cmap=shades, interpolation="nearest")
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.75, aspect=28, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=MUTED, labelsize=7, length=2.5, width=0.6, color=FAINT)
    _frame_legs(ax, len(path), closed=len(path) == size > 1)
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(colors=MUTED, labelsize=7, length=0, top=False, labeltop=True, labelbottom=False)
    ticks = range(size) if numbers else ()
    ax.set_xticks(ticks, order[list(ticks)])
    ax.set_yticks(ticks, order[list(ticks)])
    ax.set_xlabel("to", color=INK, fontsize=8)
    ax.set_ylabel("from", color=INK, fontsize=8)
    ordered = " · rows and columns in the order of the tour" if len(path) else ""
    ax.set_title(f"cost{ordered}", color=INK, fontsize=9, pad=8)


def _frame_legs(ax: Axes, visited: int, closed: bool) -> None:
    """Frames the cells of the legs between consecutive nodes, and of the closing one."""
    from matplotlib.patches import Rectangle

    cells = [(step, step + 1) for step in range(visited - 1)]
    cells += [(visited - 1, 0)] if closed else []
    for row, column in cells:
        frame = Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=ACCENT)
        frame.set_linewidth(1.4 if visited <= MAX_NUMBERED_NODES else 0.7)
        ax.add_patch(frame)
