"""Figure of one maximum coverage instance: which sets have which items, and what is covered."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.envs.rendering import (
    FAINT,
    INK,
    MUTED,
    as_path,
    count_of,
    draw_title,
    figure_png,
    fit_figure,
    root_figure,
    route_colors,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

#: Height of the heaviest item's bar, as a share of all rows below, and its limits in rows.
BAR_SHARE, MIN_BAR, MAX_BAR = 0.35, 2.5, 16.0
#: Rows up to which each has its number.
MAX_NUMBERED_SETS = 40
#: Items up to which there are gaps between them: narrower ones would come and go with the pixels.
MAX_SEPARATE_ITEMS = 80
#: Opacity of items that a chosen set above covers already, and of sets that are not chosen.
OVERLAP = 0.3


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
) -> Figure:
    """Draws sets as rows and items as columns, with the weights of the items as bars above.

    Chosen sets come first, each in its colour; items are in the order in which they are covered,
    so that what a set adds is a block of the staircase. What it has in common with the sets above
    it is paler. Without actions, or for fewer than 40 sets, all sets are there; otherwise the
    chosen ones alone.
    """
    weights = state["orig_weights"].detach().cpu().double().numpy()  # [M]
    incidence = _incidence(state["orig_membership"], len(weights))  # [N, M]
    chosen = np.empty(0, np.int64)
    if actions is not None and len(actions):
        chosen = as_path(actions)[: int(state["n_sets_to_choose"])]
    not_chosen = np.setdiff1d(np.arange(len(incidence)), chosen)
    shown = len(chosen) == 0 or len(incidence) <= MAX_NUMBERED_SETS
    rows = np.concatenate([chosen, not_chosen]) if shown else chosen
    # The first chosen set that has an item; as many as there are sets if none does.
    first = np.where(incidence[chosen].any(0), incidence[chosen].argmax(0) if len(chosen) else 0,
                     len(chosen))  # fmt: skip
    order = np.lexsort((-weights, first))
    is_new = ax is None
    ax = _new_axes(len(rows)) if ax is None else ax
    palette = route_colors(len(chosen))
    height = float(np.clip(BAR_SHARE * len(rows), MIN_BAR, MAX_BAR))
    _draw_bars(ax, weights[order], [*palette, MUTED], first[order], height)
    _draw_rows(ax, incidence[rows][:, order], [*palette, MUTED], first[order])
    _label(ax, rows, height, float(weights.max()), numbers)
    ax.set_xlim(-1.5, len(weights) + 0.5)
    by = "in the order in which they are covered" if len(chosen) else "the heaviest first"
    ax.set_xlabel(f"items, {by}", color=INK, fontsize=8)
    heading = f"{count_of(len(incidence), 'set')}, {count_of(len(weights), 'item')}"
    if len(chosen):
        covered = first < len(chosen)
        heading += (
            f" · {len(chosen)} chosen · {covered.sum()} items covered · weight "
            f"{weights[covered].sum():.6g} of {weights.sum():.6g}"
        )
    draw_title(ax, heading if title is None else title)
    figure = root_figure(ax)
    if is_new:
        fit_figure(figure)
    return figure


def _incidence(membership: Tensor, num_items: int) -> np.ndarray:
    """Which items each set has: `[N, K]` → `[N, M]`."""
    items = membership.detach().cpu().long().numpy()
    table = np.zeros((len(items), num_items + 1), dtype=bool)
    np.put_along_axis(table, items, True, axis=1)
    return table[:, 1:]


def _new_axes(num_rows: int) -> Axes:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, float(np.clip(2.0 + 0.14 * num_rows, 3.2, 9.0))))
    figure.set_layout_engine("constrained")
    figure._repr_png_ = partial(figure_png, figure)  # type: ignore[attr-defined]
    return figure.add_subplot()


def _draw_bars(
    ax: Axes, weights: np.ndarray, colors: list[str], first: np.ndarray, height: float
) -> None:
    """Weights of the items above the rows, in the colour of the set that covers them."""
    heights = height * weights / max(float(weights.max()), 1e-12)
    shades = [colors[k] if k + 1 < len(colors) else FAINT for k in first]
    ax.bar(np.arange(len(weights)), -heights, bottom=-1.0, color=shades, **_bars(len(weights)))
    ax.axhline(-1.0, color=FAINT, linewidth=0.8, zorder=1)


def _draw_rows(ax: Axes, cells: np.ndarray, colors: list[str], first: np.ndarray) -> None:
    """A square for each item of each set: full colour where the set covers it first."""
    from matplotlib.colors import to_rgba

    row, column = np.nonzero(cells)
    kind = np.minimum(row, len(colors) - 1)  # the last colour is that of sets not chosen
    shades = np.array([to_rgba(color) for color in colors])[kind]  # [cells, 4]
    adds = (first[column] == row) & (row + 1 < len(colors))
    shades[:, 3] = np.where(adds | (len(colors) == 1), 1.0, OVERLAP)
    ax.bar(column, 0.8, bottom=row - 0.4, color=shades.tolist(), **_bars(cells.shape[1]))
    for line in range(len(cells)):
        ax.axhline(line, color=FAINT, linewidth=0.5, zorder=1)


def _bars(num_items: int) -> dict[str, Any]:
    """How wide bars are: with gaps, or side by side without seams."""
    separate = num_items <= MAX_SEPARATE_ITEMS
    return {
        "width": 0.85 if separate else 1.0,
        "linewidth": 0.0,
        "antialiased": separate,
        "zorder": 2,
    }


def _label(
    ax: Axes, rows: np.ndarray, height: float, heaviest: float, numbers: bool | None
) -> None:
    """Numbers of sets, and the scale of the weights."""
    ax.set_ylim(len(rows) - 0.2, -1.6 - height)
    for spine in ax.spines.values():
        spine.set_visible(False)
    numbers = len(rows) <= MAX_NUMBERED_SETS if numbers is None else numbers
    ticks = [-1.0 - height, -1.0, *(range(len(rows)) if numbers else ())]
    texts = [f"{heaviest:g}", "0", *(f"set {row}" for row in rows if numbers)]
    ax.set_yticks(ticks, texts)
    ax.tick_params(colors=MUTED, labelsize=7, length=0)
    ax.set_xticks([])
