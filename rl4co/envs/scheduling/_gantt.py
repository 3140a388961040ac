"""Gantt charts: bars in rows, one colour per job, the makespan as a line.

matplotlib is imported when something is drawn, and no global figure, backend or style is touched.
"""

from __future__ import annotations

import colorsys
import io

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rl4co.envs.rendering import (
    ACCENT,
    FAINT,
    INK,
    MAX_LEGEND_ROUTES,
    MUTED,
    ROUTE_COLORS,
    draw_legend,
    draw_title,
    root_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Width of a character in units of the font size, for guessing whether a label fits.
_CHARACTER = 0.62
_FONT_SIZES = (7.5, 6.0, 5.0)
_HEIGHT = 0.78


class Bar(NamedTuple):
    """One operation in a chart.

    Attributes:
        row: Row, from 0 at the top.
        start: Where it begins.
        finish: Where it ends.
        job: Its job, which sets the colour.
        labels: What to write into it: the first that fits.
    """

    row: int
    start: float
    finish: float
    job: int
    labels: tuple[str, ...] = ()


def job_colors(count: int) -> list[str]:
    """Distinct colours for jobs: a fixed set for 18, shades of evenly spread hues for more."""
    if count <= len(ROUTE_COLORS):
        return list(ROUTE_COLORS[:count])
    colors = []
    for job in range(count):
        lightness, saturation = ((0.42, 0.72), (0.62, 0.62), (0.30, 0.50), (0.74, 0.70))[job % 4]
        red, green, blue = colorsys.hls_to_rgb(job / count, lightness, saturation)
        colors.append(f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}")
    return colors


def draw_gantt(
    bars: Sequence[Bar],
    rows: Sequence[str],
    num_jobs: int,
    *,
    title: str,
    end: float | None = None,
    ax: Axes | None = None,
    labels: bool | None = None,
    legend: bool | None = None,
    xlabel: str = "time",
) -> Figure:
    """A chart of bars in rows.

    Args:
        bars: The operations.
        rows: Names of the rows, from the top.
        num_jobs: Number of jobs, for the colours.
        title: Title above the chart.
        end: Where to draw the line of the makespan; None for no line.
        ax: Axes to draw on; a new figure if None.
        labels: Write into the bars; None means where there is room.
        legend: Name the jobs' colours; None means up to 18 jobs in a new figure.
        xlabel: Name of the horizontal axis.

    Returns:
        The figure.
    """
    if legend is None:
        legend = ax is None and num_jobs <= MAX_LEGEND_ROUTES
    span = max((bar.finish for bar in bars), default=1.0)
    ax = _chart_axes(ax, len(rows), legend)
    ax.set_xlim(0.0, 1.02 * span)
    ax.set_ylim(len(rows) - 0.45, -0.55)
    colors = job_colors(num_jobs)
    for job, color in enumerate(colors):
        job_bars = [bar for bar in bars if bar.job == job]
        if job_bars:
            ax.barh(
                [bar.row for bar in job_bars], [bar.finish - bar.start for bar in job_bars],
                left=[bar.start for bar in job_bars], height=_HEIGHT, color=color,
                edgecolor="white", linewidth=0.7 if len(bars) <= 500 else 0.25, zorder=3,
                label=f"job {job}",
            )  # fmt: skip
    if labels is not False:
        _write_labels(ax, bars, colors, span, len(rows), always=labels is True)
    _name_rows(ax, rows)
    ax.set_xlabel(xlabel, color=MUTED, fontsize=8, labelpad=2)
    if end is not None:
        ax.axvline(end, color=ACCENT, linewidth=1.4, linestyle=(0, (4, 2)), zorder=4)
        ax.annotate(
            f"{end:g}", (end, 0), xycoords=("data", "axes fraction"), xytext=(0, -3),
            textcoords="offset points", color=ACCENT, fontsize=8, fontweight="bold",
            ha="center", va="top", annotation_clip=False, zorder=6,
            bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"},
        )  # fmt: skip
    draw_title(ax, title)
    if legend:
        draw_legend(ax)
    return root_figure(ax)


def _chart_axes(ax: Axes | None, num_rows: int, legend: bool) -> Axes:
    """Axes for a chart: the given ones, or those of a new figure as high as its rows need."""
    if ax is None:
        from matplotlib.figure import Figure

        height = min(max(0.34 * num_rows, 1.2), 11.0) + 0.95
        figure = Figure(figsize=(9.0 if legend else 8.2, height), layout="constrained")
        # Notebooks show figures by pyplot's hook; this shows ours without pyplot.
        figure._repr_png_ = partial(_png, figure)  # type: ignore[attr-defined]
        ax = figure.add_subplot()
    ax.set_axisbelow(True)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)
    ax.tick_params(colors=MUTED, labelsize=7.5, length=2.5, width=0.6, color=FAINT)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    for row in range(0, num_rows, 2):
        ax.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.28, linewidth=0, zorder=0)
    return ax


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def _name_rows(ax: Axes, rows: Sequence[str]) -> None:
    step = max(1, -(-len(rows) // 40))  # every row, unless their names would overlap
    ax.set_yticks(range(0, len(rows), step), rows[::step], color=INK, fontsize=7.5)


def _write_labels(
    ax: Axes, bars: Sequence[Bar], colors: Sequence[str], span: float, num_rows: int, always: bool
) -> None:
    """The longest label that fits into each bar, in the largest size in which most do."""
    figure = root_figure(ax)
    box = ax.get_position()
    width = 72 * figure.get_figwidth() * box.width / (1.02 * span)  # points per unit of time
    height = 72 * figure.get_figheight() * box.height / num_rows * _HEIGHT
    sizes = [size for size in _FONT_SIZES if size + 1 <= height] or ([5.0] if always else [])
    if not sizes:
        return
    shortest = [
        len(bar.labels[-1]) / ((bar.finish - bar.start) * width) for bar in bars if bar.labels
    ]
    fits = {size: sum(size * _CHARACTER * share <= 0.9 for share in shortest) for size in sizes}
    size = next((s for s in sizes if fits[s] >= 0.8 * len(shortest)), sizes[-1])
    for bar in bars:
        room = 0.9 * (bar.finish - bar.start) * width
        text = next((x for x in bar.labels if len(x) * _CHARACTER * size <= room), None)
        if text is None and always and bar.labels:
            text = bar.labels[-1]
        if text is not None:
            ax.text(
                (bar.start + bar.finish) / 2, bar.row, text, color=_ink_on(colors[bar.job]),
                fontsize=size, ha="center", va="center_baseline", zorder=5, clip_on=True,
            )  # fmt: skip


def _ink_on(color: str) -> str:
    """White or dark, whichever is easier to read on a colour."""
    red, green, blue = (int(color[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.62 else INK
