"""Plots of a report: gap against time, gap by size of the instances, mean gap over time."""

from __future__ import annotations

import math
import os
import statistics

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl4co.tasks.benchmark.report import Report, Row
from rl4co.tasks.metrics import pareto_front

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours that people with any colour vision tell apart (Okabe and Ito).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999933")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLES = ("-", "--", "-.", ":")
GRID = "#d9dde4"

#: Gaps up to this many percent are drawn on a linear scale, larger ones on a logarithmic one.
LINEAR_GAP = 1.0
#: Ratio of gaps from which the scale is that mixed one.
WIDE = 30.0
#: Most groups of sizes through which a line is drawn.
SIZE_GROUPS = 8
MOST_COLUMNS = 3
#: Width of a letter of the legend, and of the sign before a name, in inches.
LETTER, LEGEND_SIGN = 0.075, 0.6
#: Ratio of sizes from which their axis is logarithmic.
WIDE_SIZES = 10
#: Powers of ten below which there are ticks between them.
FEW_DECADES = 2.5


def draw_plots(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Draws all plots for which there is data.

    Args:
        report: The report.
        folder: Folder of the files; created if needed.

    Returns:
        The files among `gap_vs_time.png`, `gap_by_size.png`, `gap_over_time.png`.
    """
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    plots: dict[str, Callable[[Report], Figure | None]] = {
        "gap_vs_time.png": plot_gap_vs_time,
        "gap_by_size.png": plot_gap_by_size,
        "gap_over_time.png": plot_gap_over_time,
    }
    written = []
    for name, plot in plots.items():
        figure = plot(report)
        if figure is not None:
            figure.savefig(place / name, dpi=150)
            written.append(place / name)
    return written


def plot_gap_vs_time(report: Report) -> Figure | None:
    """Mean gap against mean time per instance, with the Pareto front; one panel per set."""
    panels = {name: _points(report, name) for name in report.sets}
    panels = {name: points for name, points in panels.items() if points}
    if not panels:
        return None
    figure, axes = make_panels(len(panels))
    for ax, (name, points) in zip(axes, panels.items(), strict=True):
        front = pareto_front(list(points.values()))
        steps = [list(points.values())[index] for index in front]
        ax.plot(*zip(*steps, strict=True), color="#8a93a3", linewidth=1.2, zorder=1,
                drawstyle="steps-post", label="Pareto front")  # fmt: skip
        for method, point in points.items():
            style = {**_marker_style(report, method), "s": 70, "zorder": 3}
            ax.scatter(*point, edgecolors="white", linewidths=0.8, label=method, **style)
        log_axis(ax, [time for time, _ in points.values()])
        frame(ax, name, "mean time per instance (s)", "mean gap (%)",
               [gap for _, gap in points.values()])  # fmt: skip
    legend(figure, axes)
    return figure


def plot_gap_by_size(report: Report) -> Figure | None:
    """Gap of every instance by its nodes or operations, and means of groups of similar size.

    One panel per problem, as sets may differ in nothing but the size; none for a single size.
    """
    panels: dict[str, list[Row]] = {}
    for row in report.rows:
        if row.gap is not None:
            panels.setdefault(row.problem, []).append(row)
    panels = {name: rows for name, rows in panels.items() if len({row.size for row in rows}) > 1}
    if not panels:
        return None
    figure, axes = make_panels(len(panels))
    for ax, (problem, rows) in zip(axes, panels.items(), strict=True):
        for method in report.methods:
            points = [(row.size, row.gap) for row in rows if row.method == method]
            solved = [(size, gap) for size, gap in points if gap is not None]
            if solved:
                style = {
                    **_marker_style(report, method),
                    "linestyle": _line_style(report, method),
                }
                # Smaller and smaller, so that equal points can be seen.
                size = 9.0 - report.methods.index(method) % len(STYLES)
                _draw_sizes(ax, solved, method, size, style)
        sizes = [row.size for row in rows]
        if max(sizes) > WIDE_SIZES * min(sizes):
            log_axis(ax, sizes)
        frame(ax, problem, "size", "gap (%)", [row.gap for row in rows if row.gap is not None])
    legend(figure, axes)
    return figure


def _draw_sizes(
    ax: Axes, points: Sequence[tuple[int, float]], method: str, size: float, style: dict[str, Any]
) -> None:
    sizes, gaps = zip(*points, strict=True)
    ax.plot(sizes, gaps, alpha=0.35, markersize=0.6 * size, markeredgewidth=0,
            **{**style, "linestyle": ""})  # fmt: skip
    centres, means = zip(*_groups(points), strict=True)
    ax.plot(centres, means, linewidth=1.8, markersize=size, markeredgecolor="white",
            label=method, **style)  # fmt: skip


def plot_gap_over_time(report: Report) -> Figure | None:
    """Mean gap of the best solutions so far, from when all instances have one; panel per set."""
    curves = {
        name: {
            method: curve
            for method in report.methods
            if (curve := _curve(_rows(report, name, method), report.horizon))
        }
        for name in report.sets
    }
    curves = {name: of_set for name, of_set in curves.items() if of_set}
    if not curves:
        return None
    figure, axes = make_panels(len(curves))
    for ax, (name, of_set) in zip(axes, curves.items(), strict=True):
        for method, curve in of_set.items():
            times, gaps = zip(*curve, strict=True)
            style = _marker_style(report, method)
            ax.plot(times, gaps, drawstyle="steps-post", linewidth=1.8, color=style["color"],
                    linestyle=_line_style(report, method), label=method)  # fmt: skip
            ax.scatter(times[0], gaps[0], **{**style, "s": 36, "zorder": 3})
        log_axis(ax, [time for curve in of_set.values() for time, _ in curve])
        frame(ax, name, "time per instance (s)", "mean gap of the best so far (%)",
               [gap for curve in of_set.values() for _, gap in curve])  # fmt: skip
    legend(figure, axes)
    return figure


# ---------------------------------------------------------------- data


def _rows(report: Report, set_name: str, method: str) -> list[Row]:
    return [row for row in report.rows if (row.set, row.method) == (set_name, method)]


def _points(report: Report, set_name: str) -> dict[str, tuple[float, float]]:
    """Mean time and mean gap by method."""
    return {
        line.method: (line.seconds.mean, line.gap.mean)
        for line in report.lines
        if line.set == set_name and line.gap is not None and line.seconds is not None
    }


def _groups(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """Mean size and mean gap of groups of similar size, about equally many in each."""
    sizes = sorted({size for size, _ in points})
    per_group = math.ceil(len(sizes) / SIZE_GROUPS)
    groups = [sizes[k : k + per_group] for k in range(0, len(sizes), per_group)]
    members = [[point for point in points if point[0] in group] for group in groups]
    return [
        (statistics.fmean(s for s, _ in group), statistics.fmean(g for _, g in group))
        for group in members
    ]


def _curve(rows: Sequence[Row], horizon: float) -> list[tuple[float, float]]:
    """Times and mean gaps, from the time when all solved instances have a solution."""
    known = [row for row in rows if row.gap is not None and row.reference is not None]
    if not known:
        return []
    first = max(row.incumbents.times[0] for row in known)
    times = sorted({t for row in known for t in row.incumbents.times if t > first} | {first})
    times += [horizon] if times[-1] < horizon else []
    curve = []
    for time in times:
        gaps = [row.incumbents.gap_at(time, row.reference or 0.0) for row in known]
        curve.append((time, statistics.fmean(gap for gap in gaps if gap is not None)))
    return curve


# ---------------------------------------------------------------- styles


def make_panels(count: int, width: float = 5.2) -> tuple[Figure, list[Axes]]:
    """A figure with some panels, and their axes."""
    from matplotlib.figure import Figure

    columns = min(count, MOST_COLUMNS)
    rows = math.ceil(count / columns)
    size = (max(width * columns, 7.5), 4.4 * rows + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flatten())
    for ax in axes[count:]:
        ax.set_axis_off()
    return figure, axes[:count]


def _marker_style(report: Report, method: str) -> dict[str, Any]:
    return marker_style(report.methods.index(method))


def marker_style(index: int) -> dict[str, Any]:
    """Colour and sign of the series with a number."""
    shift = index // len(COLORS)  # further methods get other pairs of colour and sign
    return {
        "color": COLORS[index % len(COLORS)],
        "marker": MARKERS[(index + shift) % len(MARKERS)],
    }


def _line_style(report: Report, method: str) -> str:
    return STYLES[report.methods.index(method) % len(STYLES)]


def frame(ax: Axes, title: str, xlabel: str, ylabel: str, gaps: Sequence[float]) -> None:
    """Titles, scale of gaps, grid."""
    first = ax.get_subplotspec()
    ax.set(xlabel=xlabel, ylabel=ylabel if first is None or first.is_first_col() else "")
    ax.set_title(title, loc="left", fontsize=11)
    low, high = min([0.0, *gaps]), max(gaps)
    if high > WIDE * LINEAR_GAP:
        ax.set_yscale("symlog", linthresh=LINEAR_GAP, linscale=0.6)
        # One tick per half a power of ten: 0.3, 1, 3, 10, ...
        powers = range(-1, math.ceil(math.log10(high)) + 1)
        ticks = [t for power in powers for t in (10.0**power, 3 * 10.0**power)][1:]
        ax.set_yticks([-tick for tick in ticks if -tick > low] + [0.0, *ticks])
        ax.set_ylim(low - 0.1, 1.35 * high)
    elif low == 0:
        ax.set_ylim(-0.03 * (high or 1.0), 1.08 * (high or 1.0))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.axhline(0, color="#6b7485", linewidth=0.9, zorder=0)
    ax.grid(color=GRID, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def log_axis(ax: Axes, numbers: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, space at the ends and two ticks at least."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = min(numbers), max(numbers)
    ax.set_xscale("log")
    ax.set_xlim(low / 1.6, max(high * 1.6, low * 12))
    left, right = ax.get_xlim()
    few = math.log10(right / left) < FEW_DECADES
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_formatter(NullFormatter())


def legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, below them."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        entries.update(zip(labels, handles, strict=True))
    names = [name for name in entries if name != "Pareto front"]
    names += [name for name in entries if name == "Pareto front"]
    width = LETTER * max(map(len, names)) + LEGEND_SIGN
    figure.legend(
        [entries[name] for name in names], names, loc="outside lower center",
        ncols=max(1, min(len(names), int(figure.get_figwidth() / width))), frameon=False,
        fontsize=9.5,
    )  # fmt: skip
