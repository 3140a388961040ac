"""Plot of one split delivery instance, with routes or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl4co.envs.rendering import as_path, count_of, format_cost, path_cost, split_routes
from rl4co.envs.routing._map import MapOptions, RouteMap, closed_walk, sizes_by

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
    """Draws the depot, customers that grow with their demand, and coloured routes.

    A customer of several routes is a pie chart of their deliveries. The legs from and to the
    depot are faint, so that the routes stand out.
    """
    demand = state["demand"].detach().cpu().double().numpy()  # [N]
    unit, total = (float(state[key].reshape(-1)[0]) for key in ("vehicle_capacity", "capacity"))
    routes = [] if actions is None else split_routes(as_path(actions))
    delivered = deliveries(demand, unit, routes)
    chart = RouteMap(state, ax, num_routes=len(routes), **options)
    for number, (route, color) in enumerate(zip(routes, chart.palette, strict=True)):
        load = round(delivered[number].sum() * total / unit, 2)
        chart.draw_route(route, color, f"route {number + 1}: {load:g}/{round(total, 2):g}")
    sizes = sizes_by(demand[1:])
    chart.draw_customers(sizes)
    for node in range(1, len(demand)):
        _draw_shares(chart, node, sizes[node - 1], delivered[:, node])
    chart.draw_depots()
    heading = count_of(chart.num_customers, "customer")
    if actions is not None:
        shared = int(((delivered > 0).sum(0) > 1).sum())
        heading += f" ({shared} shared) · {count_of(len(routes), 'route')}"
        heading += f" · cost {format_cost(path_cost(state, closed_walk(routes)))}"
    return chart.finish(heading)


def deliveries(demand: np.ndarray, capacity: float, routes: Sequence[np.ndarray]) -> np.ndarray:
    """Deliveries of each route to each node, as large as possible at every visit: `[R, N]`."""
    needs = demand.copy()
    delivered = np.zeros((len(routes), len(demand)))
    for number, route in enumerate(routes):
        free = capacity
        for node in route:
            amount = min(needs[node], free)
            needs[node], free = needs[node] - amount, free - amount
            # Rounding errors are no deliveries.
            delivered[number, node] += amount if amount > 1e-5 * capacity else 0.0
    return delivered


def _draw_shares(chart: RouteMap, node: int, size: float, shares: np.ndarray) -> None:
    """A pie chart of the deliveries `shares [R]` of all routes to a node, if there are several."""
    from matplotlib.path import Path

    involved = np.flatnonzero(shares)
    if len(involved) < 2:
        return
    borders = np.concatenate([[0.0], np.cumsum(shares[involved])]) / shares.sum()
    for number, start, stop in zip(involved.tolist(), borders[:-1], borders[1:], strict=True):
        angles = np.pi / 2 - 2 * np.pi * np.linspace(start, stop, 40)  # clockwise from the top
        arc = np.column_stack([np.cos(angles), np.sin(angles)])  # [40, 2]
        outline = np.concatenate([[[0.0, 0.0]], arc, [[0.0, 0.0]]])
        # matplotlib scales a marker by its largest coordinate.
        area = 0.8 * size * float(np.abs(outline).max()) ** 2
        chart.ax.scatter(
            [chart.points[node, 0]], [chart.points[node, 1]], s=area, marker=Path(outline),
            c=chart.palette[number], linewidths=0, zorder=5,
        )  # fmt: skip
