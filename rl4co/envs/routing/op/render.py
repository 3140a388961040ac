"""Picture of one orienteering instance, with its tour or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MAX_NUMBERED_NODES,
    MUTED,
    ROUTE_COLORS,
    as_path,
    count_of,
    draw_arrows,
    draw_depot,
    draw_nodes,
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
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

NUM_ARROWS = 8


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    numbers: bool | None = None,
) -> Figure:
    """Draws the depot, customers that grow with their prize, and the tour.

    Customers that the tour leaves out are grey.

    Args:
        state: Single instance: `locs [N, 2]` with the depot first, or `cost_matrix [N, N]` alone,
            which is laid out by multidimensional scaling; `prize [N]`, `max_length [1]`.
        actions: Visited nodes `[T]`, 0 is the depot; None for the instance alone.
        ax: Axes to draw on; a new figure if None.
        title: Replaces the title, which gives the prize and the length.
        numbers: Write customer indices; None means up to 30 customers.

    Returns:
        The figure.
    """
    points, note = node_coordinates(state)
    prize = state["prize"].detach().cpu().double().numpy()  # [N]
    limit = float(state["max_length"].reshape(-1)[0])
    walk = None if actions is None else depot_walk(as_path(actions))
    ax = draw_partial_tour(ax, points, prize, walk, [MUTED] * len(points), numbers=numbers)
    heading = f"{count_of(len(points) - 1, 'customer')} · at most {limit:g} long"
    if walk is not None:
        length = format_cost(path_cost(state, walk))
        heading = f"{len(set(walk) - {0})} of {count_of(len(points) - 1, 'customer')}"
        heading += f" · prize {format_cost(prize[walk].sum())} · length {length} of {limit:g}"
    draw_title(ax, heading if title is None else title, note)
    return root_figure(ax)


def depot_walk(actions: np.ndarray) -> np.ndarray:
    """From the depot along `actions [T]`, up to the return if there is one: `[T']`."""
    returns = np.flatnonzero(actions == 0)
    stop = returns[0] + 1 if returns.size else len(actions)
    return np.concatenate([[0], actions[:stop]])


def draw_partial_tour(
    ax: Axes | None,
    points: np.ndarray,
    prize: np.ndarray,
    walk: np.ndarray | None,
    left_out: Sequence[str],
    *,
    numbers: bool | None = None,
) -> Axes:
    """Depot, customers that grow with their prize, and a tour of some of them.

    Args:
        ax: Axes to draw on; those of a new figure if None.
        points: Places of all nodes `[N, 2]`, depot first.
        prize: `[N]`.
        walk: Nodes of the tour from the depot on `[T]`, or None for the instance alone.
        left_out: Colours of the nodes that are not on the tour.
        numbers: Write customer indices; None means up to 30 customers.
    """
    customers = len(points) - 1
    if numbers is None:
        numbers = customers <= MAX_NUMBERED_NODES
    ax = routing_axes(ax, points)
    ax.update_datalim(points)
    colors = [INK] * len(points) if walk is None else list(left_out)
    if walk is not None:
        color = ROUTE_COLORS[0]
        draw_path(ax, points[walk], color, width=line_width(customers))
        draw_arrows(ax, points[walk], color, count=NUM_ARROWS, shortest=0.12 if numbers else 0.06)
        for node in walk:
            colors[node] = color
    share = prize[1:] / max(float(prize.max(initial=0.0)), 1e-12)
    draw_nodes(
        ax,
        points[1:],
        color=colors[1:],
        sizes=node_size(customers) * (0.85 + share),
        names=range(1, customers + 1) if numbers else None,
    )
    draw_depot(ax, points[0])
    return ax
