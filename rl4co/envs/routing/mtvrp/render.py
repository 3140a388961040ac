"""Plot of one multi-task vehicle routing instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import (
    FAINT,
    INK,
    MUTED,
    as_path,
    count_of,
    draw_nodes,
    format_cost,
    path_cost,
    split_routes,
)
from rl4co.envs.routing._map import MapOptions, RouteMap, sizes_by
from rl4co.envs.routing.mtvrp.variants import get_variant_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.path import Path as MplPath
    from torch import Tensor
    from typing_extensions import Unpack

#: Degrees that a time window takes on its clock face at least, so that it can be seen.
SMALLEST_ARC = 24.0


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    **options: Unpack[MapOptions],
) -> Figure:
    """Draws the depot, linehauls as discs, backhauls as triangles, and coloured routes.

    Marks grow with the demands. The legs from and to the depot are faint; open routes have none
    back. A clock face around each numbered customer shows its time window: the whole circle, from
    the top clockwise, is the time until the depot closes.
    """
    linehaul, backhaul = (_numpy(state[f"demand_{kind}"]) for kind in ("linehaul", "backhaul"))
    is_open = bool(state["open_route"])
    routes = [] if actions is None else split_routes(as_path(actions))
    chart = RouteMap(state, ax, num_routes=len(routes), **options)
    for number, (route, color) in enumerate(zip(routes, chart.palette, strict=True), start=1):
        loads = _format_loads(state, linehaul[route].sum(), backhaul[route].sum())
        chart.draw_route(route, color, f"route {number}: {loads}", is_open=is_open)
    sizes = sizes_by(np.maximum(linehaul, backhaul)[1:])
    points, colors = chart.points[1:], chart.colors[1:]
    if chart.numbers:  # unreadable among many customers
        _draw_windows(chart.ax, state, points, colors, sizes)
    _draw_customers(chart.ax, points, backhaul[1:] > 0, colors, sizes, chart.numbers)
    chart.draw_depots()
    heading = f"{_variant_name(state)} · {count_of(chart.num_customers, 'customer')}"
    if actions is not None:
        cost = sum(path_cost(state, [0, *route, *([] if is_open else [0])]) for route in routes)
        heading += f" · {count_of(len(routes), 'route')} · cost {format_cost(cost)}"
    return chart.finish(heading)


def _draw_customers(
    ax: Axes,
    points: np.ndarray,
    is_backhaul: np.ndarray,
    colors: np.ndarray,
    sizes: np.ndarray,
    numbers: bool,
) -> None:
    """Linehauls as discs, backhauls as triangles; both named in the legend if both are there."""
    chosen = np.flatnonzero(~is_backhaul)
    draw_nodes(
        ax,
        points[chosen],
        color=colors[chosen].tolist(),
        sizes=sizes[chosen],
        names=chosen + 1 if numbers else None,
    )
    chosen = np.flatnonzero(is_backhaul)
    if not chosen.size:
        return
    ax.scatter(
        points[chosen, 0], points[chosen, 1], s=1.5 * sizes[chosen], marker="^",
        c=colors[chosen].tolist(), edgecolors="white", linewidths=0.8, zorder=4,
    )  # fmt: skip
    ax.scatter([], [], s=50, c=INK, label="linehaul")
    ax.scatter([], [], s=55, c=INK, marker="^", label="backhaul")
    for node in chosen if numbers else ():
        ax.annotate(
            str(node + 1), points[node], xytext=(0, -1.5), textcoords="offset points",
            color="white", fontsize=6, ha="center", va="center", fontweight="bold", zorder=6,
        )  # fmt: skip


def _draw_windows(
    ax: Axes,
    state: Mapping[str, Tensor],
    points: np.ndarray,
    colors: np.ndarray,
    sizes: np.ndarray,
) -> None:
    """A clock face around each customer with a time window: the day thin, the window bold."""
    from matplotlib.path import Path

    windows = _numpy(state["time_windows"])  # [N, 2]
    limited = np.flatnonzero(np.isfinite(windows[1:, 1]))
    # If the depot never closes, the day ends with the last window.
    horizon = (
        windows[0, 1] if np.isfinite(windows[0, 1]) else windows[1:][limited, 1].max(initial=0)
    )
    if not limited.size or horizon <= 0:
        return
    hours = np.minimum(360.0 * windows[1:][limited] / horizon, 360.0)  # clockwise from the top
    center = hours.mean(axis=1)
    half = np.maximum(np.ptp(hours, axis=1) / 2, SMALLEST_ARC / 2)
    arcs = [
        Path.arc(90 - middle - h, 90 - middle + h) for middle, h in zip(center, half, strict=True)
    ]
    areas = 0.62 * sizes[limited]
    _draw_shapes(ax, [Path.unit_circle()], points[limited], areas, [FAINT], width=1.0)
    _draw_shapes(ax, arcs, points[limited], areas, colors[limited].tolist(), width=2.6)
    ax.scatter(
        [], [], s=60, facecolors="none", edgecolors=MUTED, linewidths=1.0, label="time window"
    )


def _draw_shapes(
    ax: Axes,
    shapes: Sequence[MplPath],
    points: np.ndarray,
    areas: np.ndarray,
    colors: Sequence[str],
    *,
    width: float,
) -> None:
    """Outlines of radius one around points, scaled so that their size on paper is fixed."""
    from matplotlib.collections import PathCollection
    from matplotlib.transforms import IdentityTransform

    collection = PathCollection(
        shapes, sizes=areas, offsets=points, offset_transform=ax.transData, facecolors="none",
        edgecolors=colors, linewidths=width, capstyle="butt", zorder=3.5,
    )  # fmt: skip
    collection.set_transform(IdentityTransform())
    ax.add_collection(collection, autolim=False)


def _format_loads(state: Mapping[str, Tensor], delivered: float, fetched: float) -> str:
    """Loads and capacity in original units, such as 28/30, or 20 out, 8 back/30."""
    total = float(state["capacity_original"].reshape(-1)[0])
    scale = total / float(state["vehicle_capacity"].reshape(-1)[0])
    out, back = (f"{round(load * scale, 2):g}" for load in (delivered, fetched))
    has_backhauls = bool((state["demand_backhaul"] != 0).any())
    return f"{out} out, {back} back/{total:g}" if has_backhauls else f"{out}/{total:g}"


def _variant_name(state: Mapping[str, Tensor]) -> str:
    from tensordict import TensorDict

    return get_variant_names(TensorDict(dict(state), batch_size=[]))


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().double().numpy()
