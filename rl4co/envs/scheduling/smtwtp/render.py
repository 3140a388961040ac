"""Figure of one weighted tardiness problem: jobs in order, with their due times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl4co.envs.rendering import INK, ROUTE_COLORS, count_of, format_cost
from rl4co.envs.scheduling._gantt import Bar, draw_gantt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

#: Colours of jobs in time and of late ones, as indices of the chart's colours.
IN_TIME, LATE = 0, 1


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    **options: Any,
) -> Figure:
    """Draws jobs as rows, in the order in which they run; a tick marks when each is due.

    Late jobs have the accent colour, and a line from the due time to their end. Without actions,
    all jobs begin at time 0.
    """
    due, weight, process = (
        state[key].tolist() for key in ("job_due_time", "job_weight", "job_process_time")
    )
    jobs = range(1, len(due)) if actions is None else [job for job in actions.tolist() if job]
    bars, marks, clock, cost = [], [], 0.0, 0.0
    for row, job in enumerate(jobs):
        end = clock + process[job]
        late = actions is not None and end > due[job]
        bars.append(Bar(row, clock, end, LATE if late else IN_TIME))
        marks.append((row, due[job], end, late))
        cost += weight[job] * (end - due[job]) if late else 0.0
        clock = 0.0 if actions is None else end
    heading = count_of(len(due) - 1, "job")
    if actions is not None:
        num_late = sum(late for *_, late in marks)
        heading += f" · {num_late} late · weighted tardiness {format_cost(cost)}"
    figure = draw_gantt(
        bars,
        [f"job {job}, weight {weight[job]:.2g}" for job in jobs],
        2,
        title=heading if title is None else title,
        ax=ax,
        **{"legend": False, **options},
    )
    axes = figure.axes[0] if ax is None else ax
    for row, when, end, late in marks:
        axes.plot([when, when], [row - 0.42, row + 0.42], color=INK, linewidth=1.6, zorder=5)
        if late:
            axes.plot([when, end], [row, row], color=ROUTE_COLORS[LATE], linewidth=0.9, zorder=2)
    times = [0.0, *(bar.finish for bar in bars), *(when for _, when, *_ in marks)]
    axes.set_xlim(min(times), 1.02 * max(times))
    return figure
