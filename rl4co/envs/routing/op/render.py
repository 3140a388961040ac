"""Plot of one orienteering instance, with its tour or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    MUTED,
    ROUTE_COLORS,
    as_path,
    count_of,
    format_cost,
    path_cost,
)
from rl4co.envs.routing._map import MapOptions, RouteMap, sizes_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor
    from typing_extensions import Unpack

NUM_ARROWS = 8


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the depot, customers that grow with their prize, and the tour.

    Customers that the tour leaves out are grey.
    """
    prize = state["prize"].detach().cpu().double().numpy()  # [N]
    limit = float(state["max_length"].reshape(-1)[0])
    walk = None if actions is None else depot_walk(as_path(actions))
    chart = draw_partial_tour(state, ax, prize, walk, [MUTED] * len(prize), **options)
    customers = count_of(chart.num_customers, "customer")
    heading = f"{customers} · at most {limit:g} long"
    if walk is not None:
        length = format_cost(path_cost(state, walk))
        heading = f"{len(set(walk) - {0})} of {customers}"
        heading += f" · prize {format_cost(prize[walk].sum())} · length {length} of {limit:g}"
    return chart.finish(heading)


def depot_walk(actions: np.ndarray) -> np.ndarray:
    """From the depot along `actions [T]`, up to the return if there is one: `[T']`."""
    returns = np.flatnonzero(actions == 0)
    stop = returns[0] + 1 if returns.size else len(actions)
    return np.concatenate([[0], actions[:stop]])


def draw_partial_tour(
    state: Mapping[str, Tensor],
    ax: Axes | None,
    prize: np.ndarray,
    walk: np.ndarray | None,
    left_out: Sequence[str],
    **options: Unpack[MapOptions],
) -> RouteMap:
    """Depot, customers that grow with their prize, and a tour of some of them.

    Args:
        state: Single instance, see :func:`render`.
        ax: Axes to draw on; those of a new figure if None.
        prize: `[N]`.
        walk: Nodes of the tour from the depot on `[T]`, or None for the instance alone.
        left_out: Colours of the nodes that are not on the tour.
        options: See :class:`~rl4co.envs.routing._map.MapOptions`; no legend by default.
    """
    options.setdefault("legend", False)
    chart = RouteMap(state, ax, **options)
    if walk is not None:
        chart.colors[:] = left_out
        chart.draw_walk(walk, ROUTE_COLORS[0], arrows=NUM_ARROWS)
    chart.draw_customers(sizes_by(prize[1:], smallest=0.85))
    chart.draw_depots()
    return chart
