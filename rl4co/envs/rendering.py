"""Drawing helpers shared by the routing problems: axes, colours, nodes, routes, arrows, legend.

matplotlib is imported when something is drawn, and only its object-oriented interface is used: no
global figure, backend or style is touched. Nothing assumes the unit square.
"""

from __future__ import annotations

import io

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

INK = "#22304a"
MUTED = "#8b94a5"
FAINT = "#d9dde4"
ACCENT = "#e4572e"

# Pairwise at least 30 apart in CIELAB, readable on white; the first eight were chosen by eye.
ROUTE_COLORS = (
    "#1f6fb4", "#e4572e", "#2a9d5c", "#8e4ec6", "#eda100", "#14a6b8", "#d6336c", "#7a5230",
    "#d999cc", "#8c991a", "#b2b28c", "#f2998c", "#664066", "#335940", "#8c0d73", "#bf8c40",
    "#992626", "#f266bf",
)  # fmt: skip

# Nodes of small instances are discs with their number; more nodes would only be ink.
MAX_NUMBERED_NODES = 30
MAX_LEGEND_ROUTES = 18


def route_colors(count: int) -> list[str]:
    """`count` colours for routes; they repeat after the 18 that are clearly distinct."""
    return [ROUTE_COLORS[i % len(ROUTE_COLORS)] for i in range(count)]


def node_coordinates(state: Mapping[str, Tensor]) -> tuple[np.ndarray, str | None]:
    """Where to draw the nodes of one instance, and a note if the places are not given.

    An instance that has only a `cost_matrix` is laid out by classical multidimensional scaling.

    Args:
        state: Single instance with `locs [N, 2]` or `cost_matrix [N, N]`.

    Returns:
        Coordinates `[N, 2]` and None or the note.
    """
    locs, matrix = state.get("locs", None), state.get("cost_matrix", None)
    if locs is not None:
        points = locs.detach().cpu().double().numpy()
        if points.ndim != 2 or points.shape[1] != 2:
            raise ConfigError(
                f"expected locs of one instance, [N, 2], got {list(points.shape)}; "
                "index the batch first"
            )
        return points, None
    if matrix is None:
        raise ConfigError(
            "expected an instance with locs or cost_matrix, got neither; render a state"
        )
    distances = matrix.detach().cpu().double().numpy()
    if distances.ndim != 2 or distances.shape[0] != distances.shape[1]:
        raise ConfigError(
            f"expected cost_matrix of one instance, [N, N], got {list(distances.shape)}; "
            "index the batch first"
        )
    return classical_mds(distances), "nodes placed by multidimensional scaling"


def classical_mds(distances: np.ndarray) -> np.ndarray:
    """Points in the plane whose distances approximate a matrix, which is symmetrised first.

    The doubly centred squared distances $-\\frac{1}{2} J D^2 J$ are the Gram matrix of the points;
    its two leading eigenvectors are the best plane (Torgerson, 1952).

    Shapes:
        `[N, N]` → `[N, 2]`
    """
    size = len(distances)
    symmetric = (distances + distances.T) / 2
    np.fill_diagonal(symmetric, 0.0)
    finite = np.isfinite(symmetric)  # forbidden arcs count as the longest of the others
    symmetric = np.where(finite, symmetric, symmetric.max(where=finite, initial=0.0))
    center = np.eye(size) - 1 / size
    values, vectors = np.linalg.eigh(-0.5 * center @ symmetric**2 @ center)  # ascending
    leading = np.argsort(values)[::-1][:2]
    plane = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))  # [N, min(N, 2)]
    # An eigenvector is defined up to its sign: fix it, so that equal input gives equal figures.
    largest = np.take_along_axis(
        plane, np.abs(plane).argmax(axis=0)[None], axis=0
    )  # [1, min(N, 2)]
    plane = plane * np.where(largest < 0, -1.0, 1.0)
    return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))


def path_cost(state: Mapping[str, Tensor], path: Sequence[int] | np.ndarray) -> float:
    """Cost of walking the nodes of `path`: by `cost_matrix` if given, else straight lines."""
    path = np.asarray(path, dtype=np.int64)
    matrix = state.get("cost_matrix", None)
    if matrix is not None:
        return float(matrix.detach().cpu().double().numpy()[path[:-1], path[1:]].sum())
    points, _ = node_coordinates(state)
    return float(np.linalg.norm(np.diff(points[path], axis=0), axis=1).sum())


def as_path(actions: Tensor) -> np.ndarray:
    """Actions of one instance as an integer array `[T]`."""
    if actions.ndim != 1:
        raise ConfigError(
            f"expected actions of one instance, [T], got {list(actions.shape)}; "
            "index the batch first"
        )
    return actions.detach().cpu().numpy().astype(np.int64)


def split_routes(actions: np.ndarray) -> list[np.ndarray]:
    """The routes between depot visits (0), without empty ones: `[T]` → arrays of customers."""
    parts = np.split(actions, np.flatnonzero(actions == 0))
    routes = [part[part != 0] for part in parts]
    return [route for route in routes if route.size]


def routing_axes(ax: Axes | None, points: np.ndarray) -> Axes:
    """Axes with equal scales around the points: the given ones, or those of a new figure.

    Args:
        ax: Axes to style and draw on, or None for a new figure shaped like the instance.
        points: All nodes, `[N, 2]`.
    """
    if ax is None:
        from matplotlib.figure import Figure

        width, height = np.ptp(points, axis=0) if len(points) > 1 else (1.0, 1.0)
        ratio = float(np.clip(height / width if width > 0 else 1.0, 0.5, 1.6))
        side = 5.0
        figure = Figure(figsize=(side, side * ratio + 0.5), layout="constrained")
        # Notebooks show figures by pyplot's hook; this shows ours without pyplot.
        figure._repr_png_ = partial(figure_png, figure)  # type: ignore[attr-defined]
        ax = figure.add_subplot()
    ax.set_aspect("equal", adjustable="box")
    ax.margins(0.07)
    ax.set_axisbelow(True)
    for spine in ax.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.8)
    ax.tick_params(colors=MUTED, labelsize=7, length=2.5, width=0.6, color=FAINT)
    ax.locator_params(nbins=5)
    return ax


def figure_png(figure: Figure) -> bytes:
    """The figure as a file, for notebooks."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def root_figure(ax: Axes) -> Figure:
    """The figure that holds the axes, also if they sit in a sub-figure."""
    figure: Any = ax.figure
    while figure.figure is not figure:
        figure = figure.figure
    return figure


def draw_path(
    ax: Axes,
    points: np.ndarray,
    color: str,
    *,
    width: float = 1.6,
    faint: bool = False,
    label: str | None = None,
) -> None:
    """One polyline; faint ones are thin and dashed, for legs that matter less.

    Args:
        ax: Axes to draw on.
        points: `[T, 2]`.
        color: Line colour.
        width: Line width in points, see `line_width`.
        faint: Draw behind the others, thin and dashed.
        label: Entry in the legend.
    """
    style: dict[str, Any] = (
        {"linewidth": 0.55 * width, "linestyle": (0, (4, 3)), "alpha": 0.45, "zorder": 1}
        if faint
        else {"linewidth": width, "solid_joinstyle": "round", "zorder": 2}
    )
    ax.plot(points[:, 0], points[:, 1], color=color, label=label, **style)


def draw_arrows(
    ax: Axes, points: np.ndarray, color: str, *, count: int, shortest: float = 0.06
) -> None:
    """Arrow heads at the middle of at most `count` legs of a polyline, spread along its length.

    Short legs get none: an arrow head longer than its line is only a blot.

    Args:
        ax: Axes with equal scales, so that angles on paper are angles of the data.
        points: Polyline `[T, 2]`.
        color: Fill colour.
        count: Most arrow heads to draw.
        shortest: Legs below this share of the figure get none.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, IdentityTransform

    legs = np.diff(points, axis=0)  # [T - 1, 2]
    lengths = np.linalg.norm(legs, axis=1)
    extent = max(float(np.ptp(ax.dataLim.get_points(), axis=0).max()), 1e-12)
    long = np.flatnonzero(lengths > shortest * extent)
    if not long.size:
        return
    middles = np.cumsum(lengths) - lengths / 2  # [T - 1], walked up to the middle of each leg
    targets = (np.arange(count) + 0.5) / count * lengths.sum()
    chosen = np.unique(long[np.abs(middles[long][:, None] - targets).argmin(axis=0)])
    head = Path([(0.6, 0.0), (-0.4, 0.4), (-0.22, 0.0), (-0.4, -0.4), (0.6, 0.0)])
    angles = np.arctan2(legs[chosen, 1], legs[chosen, 0])
    arrows = PathCollection(
        [head.transformed(Affine2D().rotate(angle)) for angle in angles],
        sizes=[64],
        offsets=(points[:-1] + legs / 2)[chosen],
        offset_transform=ax.transData,
        facecolors=color,
        edgecolors="white",
        linewidths=0.5,
        zorder=3,
    )
    arrows.set_transform(IdentityTransform())
    ax.add_collection(arrows, autolim=False)


def draw_nodes(
    ax: Axes,
    points: np.ndarray,
    *,
    color: str | Sequence[str] = INK,
    sizes: float | np.ndarray | None = None,
    names: Sequence[int] | np.ndarray | None = None,
) -> None:
    """Nodes as discs with a white rim.

    Args:
        ax: Axes to draw on.
        points: `[n, 2]`.
        color: One colour, or one for each node.
        sizes: Areas in square points; chosen by the number of nodes if None.
        names: Numbers written into the discs.
    """
    if sizes is None:
        sizes = node_size(len(points))
    rim = 0.7 if names is None else 1.0
    ax.scatter(
        points[:, 0], points[:, 1], s=sizes, c=color, edgecolors="white", linewidths=rim, zorder=4
    )
    for point, name in zip(points, names, strict=True) if names is not None else ():
        draw_name(ax, point, name)


def draw_name(ax: Axes, point: Sequence[float] | np.ndarray, name: int) -> None:
    """The number of a node, in white on its disc."""
    ax.annotate(
        str(name), (float(point[0]), float(point[1])), color="white", fontsize=6.5, ha="center",
        va="center_baseline", fontweight="bold", zorder=6,
    )  # fmt: skip


def node_size(count: int) -> float:
    """Area of a disc in square points: large enough for a number if there are few nodes."""
    return 125.0 if count <= MAX_NUMBERED_NODES else float(np.clip(3000 / count, 5, 40))


def line_width(count: int) -> float:
    """Line width in points for a figure of `count` nodes."""
    return float(np.clip(17 / np.sqrt(max(count, 1)), 0.8, 1.7))


def draw_depot(ax: Axes, points: np.ndarray, label: str | None = None) -> None:
    """Depots `[k, 2]` as dark squares above everything else."""
    points = np.atleast_2d(points)
    ax.scatter(
        points[:, 0], points[:, 1], s=110, marker="s", c=INK, edgecolors="white", linewidths=1.2,
        zorder=7, label=label,
    )  # fmt: skip


def fit_figure(figure: Figure) -> None:
    """Enlarges a figure until all that is drawn lies inside it."""
    for _ in range(4):  # the layout is computed anew for each size, and ticks may change with it
        figure.draw_without_rendering()
        width, height = figure.get_size_inches()
        box = figure.get_tightbbox().padded(0.04)  # in inches
        wider = max(-box.x0, 0.0) + max(box.x1 - width, 0.0)
        higher = max(-box.y0, 0.0) + max(box.y1 - height, 0.0)
        if wider + higher == 0.0:
            return
        # Twice, as the layout keeps what it places in the middle.
        figure.set_size_inches(width + 2 * wider, height + 2 * higher)


def draw_legend(ax: Axes, *, widen: bool = False) -> None:
    """Legend of all labelled artists, outside the axes on the right.

    Args:
        ax: Axes that it explains.
        widen: Make the figure wider by as much as the legend takes.
    """
    legend = ax.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False,
        fontsize=8, labelcolor=INK, handlelength=1.3, labelspacing=0.45,
    )  # fmt: skip
    if widen:
        figure = root_figure(ax)
        figure.draw_without_rendering()
        figure.set_figwidth(figure.get_figwidth() + legend.get_window_extent().width / figure.dpi)


def draw_title(ax: Axes, title: str, note: str | None = None) -> None:
    """Title above the axes, with a smaller remark below it."""
    ax.set_title(title, color=INK, fontsize=10.5, pad=7 if note is None else 18)
    if note is not None:
        ax.annotate(
            note, (0.5, 1.0), xytext=(0, 6), xycoords="axes fraction", textcoords="offset points",
            color=MUTED, fontsize=8, ha="center", va="bottom", annotation_clip=False,
        )  # fmt: skip


def count_of(count: int, noun: str) -> str:
    """Such as 1 route, 2 routes."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_cost(cost: float) -> str:
    """A cost with at least four significant digits."""
    return f"{cost:.3f}" if abs(cost) < 1000 else f"{cost:.1f}"
