"""Plot of one pickup and delivery instance, with a tour or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MUTED,
    as_path,
    count_of,
    draw_name,
    draw_path,
    format_cost,
    node_size,
    path_cost,
)
from rl4co.envs.routing._map import MapOptions, RouteMap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack

NUM_ARROWS = 12
PICKUP, DELIVERY = "#1f6fb4", "#e4572e"
# With more orders the lines between pickups and deliveries are a haze.
MAX_LINKED_ORDERS = 30


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the depot, pickups, deliveries and, if given, the tour.

    A faint line joins each pickup to its delivery. A complete tour returns to the depot, a partial
    one is drawn as a path.
    """
    chart = RouteMap(state, ax, **options)
    customers, size = chart.points[1:], chart.num_customers
    draw_orders(chart.ax, customers)
    heading = count_of(size // 2, "order")
    if actions is not None and len(actions):
        path = as_path(actions)
        path = path[path != 0]
        complete = len(path) == size
        walk = np.concatenate([[0], path, [0] if complete else []]).astype(np.int64)
        chart.draw_walk(walk, INK, arrows=NUM_ARROWS)
        cost = format_cost(path_cost(state, walk))
        heading += f" · cost {cost}" if complete else f" · {len(path)} visited · cost {cost}"
    draw_customers(chart.ax, customers, names=range(1, size + 1) if chart.numbers else None)
    chart.draw_depots()
    return chart.finish(heading)


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
    for point, name in zip(customers, names or (), strict=False):
        draw_name(ax, point, name)
