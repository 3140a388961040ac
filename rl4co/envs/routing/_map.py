"""`RouteMap`: what the plots of all routing problems share, from the axes to the legend.

The `render` function of a problem adds its particulars: routes, labels, sizes of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from rl4co.envs.rendering import (
    INK,
    MAX_LEGEND_ROUTES,
    MAX_NUMBERED_NODES,
    draw_arrows,
    draw_depot,
    draw_legend,
    draw_nodes,
    draw_path,
    draw_title,
    fit_figure,
    line_width,
    node_coordinates,
    node_size,
    root_figure,
    route_colors,
    routing_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


class MapOptions(TypedDict, total=False):
    """Options of every `render` function of a routing problem.

    Each draws a single instance (a state without batch axis), with the solution `actions [T]` or
    alone (None), on `ax` or in a new figure, which it returns.

    Attributes:
        title: Replaces the title, which describes the instance and the solution.
        numbers: Write node indices; None means up to 30 customers.
        legend: Explain the colours; None means in a new figure, with up to 18 routes.
    """

    title: str | None
    numbers: bool | None
    legend: bool | None


class RouteMap:
    """A map of one instance, drawn piece by piece.

    Args:
        state: Single instance with `locs [N, 2]`, or with `cost_matrix [N, N]` alone, which is laid
            out by multidimensional scaling.
        ax: Axes to draw on; those of a new figure if None.
        num_routes: Number of routes, each with a colour; None if they share one.
        num_depots: Leading nodes that are depots.
        title: See :class:`MapOptions`.
        numbers: See :class:`MapOptions`.
        legend: See :class:`MapOptions`.

    Attributes:
        ax: The axes.
        points: Coordinates of all nodes `[N, 2]`.
        note: Remark on the coordinates, or None.
        num_customers: Nodes that are not depots.
        numbers: Whether indices are written.
        palette: Colours of the routes.
        colors: Colours of the nodes `[N]`; drawing a route sets those of its nodes.
        width: Line width.
    """

    def __init__(
        self,
        state: Mapping[str, Tensor],
        ax: Axes | None,
        *,
        num_routes: int | None = None,
        num_depots: int = 1,
        title: str | None = None,
        numbers: bool | None = None,
        legend: bool | None = None,
    ) -> None:
        self.title = title
        self.points, self.note = node_coordinates(state)
        self.num_depots = num_depots
        self.num_customers = len(self.points) - num_depots
        self.numbers = self.num_customers <= MAX_NUMBERED_NODES if numbers is None else numbers
        if legend is None:
            is_short = num_routes is None or 0 < num_routes <= MAX_LEGEND_ROUTES
            legend = ax is None and is_short
        self.legend = legend
        self.palette = route_colors(num_routes or 0)
        self.colors = np.full(len(self.points), INK, dtype=object)
        self.width = line_width(self.num_customers)
        self.is_new = ax is None
        self.ax = routing_axes(ax, self.points)
        self.ax.update_datalim(self.points)

    def draw_walk(
        self,
        walk: np.ndarray,
        color: str,
        *,
        arrows: int,
        label: str | None = None,
        bold: float = 1,
    ) -> None:
        """A solid line along the nodes `walk [T]`, which get its colour.

        Args:
            walk: Nodes in the order of the visits.
            color: Colour of line and nodes.
            arrows: Most arrow heads on it.
            label: Entry in the legend.
            bold: Factor of the line width.
        """
        line = self.points[walk]
        draw_path(self.ax, line, color, width=bold * self.width, label=label)
        # Numbered discs hide more of a leg; one long line needs fewer arrows than many short ones.
        shortest = (0.12 if arrows > 4 else 0.1) * (1.0 if self.numbers else 0.5)
        draw_arrows(self.ax, line, color, count=arrows, shortest=shortest)
        self.colors[walk] = color

    def draw_legs(self, *legs: tuple[int, int], color: str) -> None:
        """Faint lines between pairs of nodes."""
        for leg in legs:
            draw_path(self.ax, self.points[list(leg)], color, width=self.width, faint=True)

    def draw_route(
        self,
        route: np.ndarray,
        color: str,
        label: str | None = None,
        *,
        arrows: int = 2,
        is_open: bool = False,
    ) -> None:
        """A route from the depot (0): its customers `[n]`, and the legs from and to it faintly.

        Args:
            route: Customers in the order of the visits.
            color: Colour of the route and of its customers.
            label: Entry in the legend.
            arrows: Most arrow heads on it.
            is_open: Leave out the leg back.
        """
        self.draw_walk(route, color, arrows=arrows, label=label)
        back = () if is_open else ((int(route[-1]), 0),)
        self.draw_legs((0, int(route[0])), *back, color=color)

    def draw_customers(self, sizes: np.ndarray | None = None) -> None:
        """Discs in the colours of their routes, with areas `sizes [N - depots]`."""
        first = self.num_depots
        names = range(first, len(self.points)) if self.numbers else None
        colors = self.colors[first:].tolist()
        draw_nodes(self.ax, self.points[first:], color=colors, sizes=sizes, names=names)

    def draw_depots(self, label: str | None = "depot") -> None:
        """Squares above everything else."""
        draw_depot(self.ax, self.points[: self.num_depots], label=label)

    def finish(self, heading: str, note: str | None = None) -> Figure:
        """Adds the title (`heading` unless there is an option), remarks and the legend."""
        remarks = [remark for remark in (note, self.note) if remark is not None]
        title = heading if self.title is None else self.title
        draw_title(self.ax, title, " · ".join(remarks) if remarks else None)
        if self.legend and self.ax.get_legend_handles_labels()[0]:
            draw_legend(self.ax, widen=self.is_new)
        figure = root_figure(self.ax)
        if self.is_new:
            fit_figure(figure)
        return figure


def sizes_by(values: np.ndarray, smallest: float = 0.8) -> np.ndarray:
    """Areas `[n]` that grow linearly with `values [n]`; the smallest still shows its number."""
    share = values / max(float(values.max(initial=0.0)), 1e-12)
    return node_size(len(values)) * (smallest + share)


def closed_walk(routes: Sequence[np.ndarray]) -> np.ndarray:
    """All routes in one walk that begins and ends at the depot and returns in between: `[T]`."""
    return np.concatenate([[0], *[np.append(route, 0) for route in routes]]).astype(np.int64)
