"""Picture of one pickup and delivery instance, with a tour or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MAX_NUMBERED_NODES,
    MUTED,
    as_path,
    count_of,
    draw_arrows,
    draw_depot,
    draw_legend,
    draw_path,
    draw_title,
    format_cost,
    line_width,
    node_coordinates,
    node_size,
    path_cost,
    root_figure,
    routing_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

NUM_ARROWS = 12
PICKUP, DELIVERY = "#1f6fb4", "#e4572e"
# With more orders the lines between pickups and deliveries are a haze.
MAX_LINKED_ORDERS = 30


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
    legend: bool | None = None,
) -> Figure:
    """Draws the depot, pickups, deliveries and, if given, the tour.

    A faint line joins each pickup to its delivery. A complete tour returns to the depot, a partial
    one is drawn as a path.

    Args:
        state: Single instance: `locs [N, 2]` (depot, pickups, deliveries), or `cost_matrix [N, N]`
            alone, which is laid out by multidimensional scaling.
        actions: Visited nodes `[T]`, with the depot (0) in front or without; None for the instance
            alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the number of orders and the cost.
        numbers: Write node indices; None means up to 30 customers.
        legend: Explain the colours; None means in a new figure.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    customers = len(points) - 1
    legend = ax is None if legend is None else legend
    numbers = customers <= MAX_NUMBERED_NODES if numbers is None else numbers
    ax = routing_axes(ax, points, legend=legend)
    ax.update_datalim(points)

    draw_orders(ax, points[1:])
    heading = count_of(customers // 2, "order")
    if actions is not None and len(actions):
        path = as_path(actions)
        path = path[path != 0]
        complete = len(path) == customers
        walk = np.concatenate([[0], path, [0] if complete else []]).astype(np.int64)
        draw_path(ax, points[walk], INK, width=line_width(customers))
        # Numbered nodes hide more of a leg.
        shortest = 0.12 if numbers else 0.06
        draw_arrows(ax, points[walk], INK, count=NUM_ARROWS, shortest=shortest)
        cost = format_cost(path_cost(state, walk))
        heading += f" · cost {cost}" if complete else f" · {len(path)} visited · cost {cost}"
    draw_customers(ax, points[1:], names=range(1, customers + 1) if numbers else None)
    draw_depot(ax, points[0], label="depot")
    draw_title(ax, heading if title is None else title, note)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def draw_orders(ax: Axes, customers: np.ndarray) -> None:
    """A faint line from each pickup to its delivery, unless they are too many: `[n, 2]`."""
    half = len(customers) // 2
    if half > MAX_LINKED_ORDERS:
        return
    for pickup, delivery in zip(customers[:half], customers[half:], strict=True):
        draw_path(ax, np.stack([pickup, delivery]), MUTED, width=1.6, faint=True)


def draw_customers(
    ax: Axes,
    customers: np.ndarray,
    *,
    colors: Sequence[str] | None = None,
    names: range | None = None,
) -> None:
    """Pickups as discs and deliveries as diamonds.

    Args:
        ax: Axes to draw on.
        customers: Pickups, then deliveries `[n, 2]`.
        colors: One colour for each, if pickups and deliveries are not to have their own.
        names: Numbers written into the nodes.
    """
    half, size = len(customers) // 2, node_size(len(customers))
    kinds = (
        ("pickup", "o", PICKUP, slice(0, half)),
        ("delivery", "D", DELIVERY, slice(half, None)),
    )
    for label, marker, color, part in kinds:
        x, y = customers[part].T
        ax.scatter(
            x, y, s=size, c=color if colors is None else list(colors[part]), marker=marker,
            edgecolors="white", linewidths=0.7 if names is None else 1.0, zorder=4,
        )  # fmt: skip
        # Legends show the colour of the first node, which need not be that of the others.
        legend_color = color if colors is None else INK
        ax.scatter([], [], s=min(size, 50.0), c=legend_color, marker=marker, label=label)
    for (x, y), name in zip(customers, names or (), strict=False):
        ax.annotate(
            str(name), (x, y), color="white", fontsize=6.5, ha="center", va="center_baseline",
            fontweight="bold", zorder=6,
        )  # fmt: skip
