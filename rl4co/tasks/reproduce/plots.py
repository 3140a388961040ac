"""Plots of a family: dots and lines over an axis, heat maps, learning curves, gap against time."""

from __future__ import annotations

import dataclasses
import statistics

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rl4co.core.errors import UnknownNameError
from rl4co.tasks.benchmark.plots import (
    GRID,
    frame,
    legend,
    make_panels,
    marker_style,
    plot_gap_by_size,
    plot_gap_over_time,
    plot_gap_vs_time,
)
from rl4co.tasks.benchmark.report import Report, Row, make_lines
from rl4co.tasks.metrics import Incumbents
from rl4co.tasks.reproduce.results import METRICS, Measured, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CURVE_AXES = {"steps": "training steps", "minutes": "training time (min)",
               "solutions": "solutions seen in training"}  # fmt: skip
#: Ratio of numbers on an axis from which it is logarithmic.
_WIDE = 10.0


def draw(results: Results, folder: Path) -> list[Path]:
    """Draws the plots of all views that have results; existing files are replaced."""
    written = []
    for number, view in enumerate(results.family.views):
        kind = view.get("plot")
        if kind is None:
            continue
        if kind not in PLOTS:
            raise UnknownNameError(f"plot of {results.family.name}", kind, PLOTS)
        cells = [each for each in results.select(view.get("where", {})) if each.is_complete]
        figure = PLOTS[kind](results, cells, view) if cells else None
        if figure is not None:
            folder.mkdir(parents=True, exist_ok=True)
            written.append(folder / f"{view.get('name', f'{kind}_{number}')}.png")
            figure.savefig(written[-1], dpi=130)
    return written


def _name(cell: Measured, axes: Any) -> str:
    """Options of some axes as a label."""
    chosen = [axes] if isinstance(axes, str) else list(axes or ())
    return " ".join(cell.axes[axis] for axis in chosen if axis in cell.axes)


def _grouped(cells: Sequence[Measured], axes: Any) -> dict[str, list[Measured]]:
    groups: dict[str, list[Measured]] = {}
    for cell in cells:
        groups.setdefault(_name(cell, axes), []).append(cell)
    return groups


def _style(names: Sequence[str], name: str) -> dict[str, Any]:
    return {**marker_style(names.index(name)), "markersize": 7, "markeredgecolor": "white"}


def _over_axis(results: Results, cells: Sequence[Measured], view: Mapping[str, Any]) -> Figure:
    """A metric over the options of an axis, which are numbers or names."""
    x, metric = view["x"], view.get("y", "gap")
    groups, marks = _grouped(cells, view.get("panel")), list(_grouped(cells, view.get("mark")))
    figure, axes = make_panels(len(groups))
    for ax, (title, members) in zip(axes, groups.items(), strict=True):
        order = list(dict.fromkeys(cell.axes[x] for cell in members if x in cell.axes))
        numeric = all(_is_number(option) for option in order)
        numbers: list[float] = []
        for mark, series in _grouped(members, view.get("mark")).items():
            points = [
                (float(cell.axes[x]) if numeric else order.index(cell.axes[x]), mean)
                for cell in series
                if x in cell.axes and (mean := cell.mean(metric)) is not None
            ]
            if not points:
                continue
            xs, ys = zip(*sorted(points), strict=True)
            line = "-" if view["plot"] == "lines" else ""
            ax.plot(xs, ys, line, label=mark or metric, **_style(marks, mark))
            numbers += ys
        if not numbers:
            continue
        _scale_x(ax, order, numeric)
        frame(ax, title, x, METRICS[metric][0], numbers)
    legend(figure, axes)
    return figure


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _scale_x(ax: Axes, order: Sequence[str], numeric: bool) -> None:
    if not numeric:
        ax.set_xticks(range(len(order)), order, rotation=20 if max(map(len, order)) > 7 else 0)
        ax.set_xlim(-0.5, len(order) - 0.5)
        return
    numbers = [float(option) for option in order]
    if min(numbers) > 0 and max(numbers) >= _WIDE * min(numbers):
        ax.set_xscale("log")
    ax.set_xticks(numbers, order)
    ax.minorticks_off()


def _heat(results: Results, cells: Sequence[Measured], view: Mapping[str, Any]) -> Figure:
    """A metric over two axes as colours with numbers."""
    x, y, metric = view["x"], view["y"], view.get("cells", "gap")
    groups = _grouped(cells, view.get("panel"))
    figure, axes = make_panels(len(groups))
    for ax, (title, members) in zip(axes, groups.items(), strict=True):
        columns = [o for o in results.family.axes[x] if any(c.axes.get(x) == o for c in members)]
        rows = [o for o in results.family.axes[y] if any(c.axes.get(y) == o for c in members)]
        grid = np.full((len(rows), len(columns)), np.nan)
        for cell in members:
            if x in cell.axes and y in cell.axes:
                mean = cell.mean(metric)
                place = rows.index(cell.axes[y]), columns.index(cell.axes[x])
                grid[place] = np.nan if mean is None else mean
        colours = ax.imshow(grid, aspect="auto", cmap="viridis_r", origin="lower")
        middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
        for (row, column), number in np.ndenumerate(grid):
            if not np.isnan(number):
                colour = "white" if number > middle else "black"
                ax.text(column, row, f"{number:.3g}", ha="center", va="center", color=colour,
                        fontsize=8)  # fmt: skip
        ax.set_xticks(range(len(columns)), columns)
        ax.set_yticks(range(len(rows)), rows)
        ax.set(xlabel=x, ylabel=y)
        ax.set_title(f"{title} {METRICS[metric][0]}".strip(), loc="left", fontsize=11)
        figure.colorbar(colours, ax=ax, shrink=0.8)
    return figure


def _curves(results: Results, cells: Sequence[Measured], view: Mapping[str, Any]) -> Figure | None:
    """Validation cost over training, with a band between the best and the worst seed."""
    x = view.get("x", "steps")
    if x not in _CURVE_AXES:
        raise UnknownNameError("axis of learning curves", x, _CURVE_AXES)
    trained = [
        cell
        for cell in cells
        if any(each["curve"] for each in cell.trainings)
        and (x != "solutions" or cell.cell.solutions is not None)
    ]
    if not trained:
        return None
    groups, marks = _grouped(trained, view.get("panel")), list(_grouped(trained, view.get("mark")))
    figure, axes = make_panels(len(groups))
    for ax, (title, members) in zip(axes, groups.items(), strict=True):
        for mark, series in _grouped(members, view.get("mark")).items():
            curves = [_curve(series[0], record, x) for record in series[0].trainings]
            length = min(map(len, curves))
            if not length:
                continue
            xs = [statistics.fmean(c[k][0] for c in curves) for k in range(length)]
            values = [[c[k][1] for c in curves] for k in range(length)]
            style = marker_style(marks.index(mark))
            ax.plot(xs, [statistics.fmean(v) for v in values], color=style["color"], label=mark)
            ax.fill_between(xs, list(map(min, values)), list(map(max, values)),
                            color=style["color"], alpha=0.18, linewidth=0)  # fmt: skip
        ax.set(xlabel=_CURVE_AXES[x], ylabel="mean validation reward")
        ax.set_title(title, loc="left", fontsize=11)
        ax.grid(color=GRID, linewidth=0.7)
        ax.spines[["top", "right"]].set_visible(False)
    legend(figure, axes)
    return figure


def _curve(cell: Measured, record: Mapping[str, Any], x: str) -> list[tuple[float, float]]:
    """Points of the validation reward of a training."""
    points = []
    epochs = len(record["curve"])
    for number, epoch in enumerate(record["curve"], start=1):
        if "val/reward" not in epoch:
            continue
        steps = record["steps"] * number / epochs
        at = {"steps": steps, "minutes": epoch["seconds"] / 60,
              "solutions": steps * (cell.cell.solutions or 0)}[x]  # fmt: skip
        points.append((at, epoch["val/reward"]))
    return points


def _as_report(results: Results, cells: Sequence[Measured], view: Mapping[str, Any]) -> Report:
    """Results as a report of a benchmark, whose plots then serve here, too."""
    rows = []
    for cell in cells:
        label, panel = _name(cell, view.get("mark")), _name(cell, view.get("panel"))
        for seed in range(len(cell.values)):
            for index in range(cell.values.shape[1]):
                value, gap = float(cell.values[seed, index]), float(cell.gaps[seed, index])
                if np.isnan(value) or np.isnan(gap):
                    continue
                points = cell.points[seed][index]
                size = int(cell.axes["size"]) if cell.axes.get("size", "").isdigit() else 0
                rows.append(
                    Row(set=panel, instance=str(index), problem=panel, size=size, method=label,
                        value=value, reference=float(cell.references[index]), reference_kind="",
                        gap=gap, seconds=float(cell.seconds[seed, index]),
                        normalized_seconds=None, primal_integral=None, error=None,
                        incumbents=Incumbents.of_points(points, cell.maximize), seed=seed)
                )  # fmt: skip
    horizon = results.family.variables.get("horizon")
    latest = max((row.incumbents.times[-1] for row in rows if len(row.incumbents)), default=1.0)
    report = Report(results.family.title, float(horizon or latest), tuple(rows), ())
    return dataclasses.replace(report, lines=tuple(make_lines(report.sets, report.methods, rows)))


def _of_report(plot: Callable[[Report], Figure | None]) -> Callable[..., Figure | None]:
    return lambda results, cells, view: plot(_as_report(results, cells, view))


#: Kind of a plot → function of results, cells and view.
PLOTS: Mapping[str, Callable[[Results, Sequence[Measured], Mapping[str, Any]], Any]] = {
    "dots": _over_axis,
    "lines": _over_axis,
    "heat": _heat,
    "curves": _curves,
    "gap_vs_time": _of_report(plot_gap_vs_time),
    "gap_by_size": _of_report(plot_gap_by_size),
    "gap_over_time": _of_report(plot_gap_over_time),
}
