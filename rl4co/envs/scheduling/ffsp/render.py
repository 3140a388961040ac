"""Figure of one flexible flow shop: the Gantt chart of a solution, or the jobs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl4co.envs.rendering import MUTED, count_of
from rl4co.envs.scheduling._gantt import Bar, draw_gantt
from rl4co.envs.scheduling.ffsp.schedule import trace_schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor


def render(
    state: Mapping[str, Tensor],
    actions: Tensor | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    **options: Any,
) -> Figure:
    """Draws the schedule, machines as rows and stages apart; without one, the jobs as rows.

    Without actions each bar is as long as the mean processing time of the job in a stage.
    """
    num_jobs, num_machines = state["run_time"].shape
    num_stages = state["schedule"].shape[-2]
    per_stage = num_machines // num_stages
    heading = " · ".join(
        [
            count_of(num_jobs, "job"),
            count_of(num_stages, "stage"),
            f"{count_of(per_stage, 'machine')} each",
        ]
    )
    if actions is None:
        bars, rows = _job_bars(state, num_stages), [f"job {job}" for job in range(num_jobs)]
        settings: dict[str, Any] = {"xlabel": "mean processing time", "legend": False}
    else:
        bars = _schedule_bars(state, actions, num_stages)
        rows = [f"{m // per_stage}.{m % per_stage}" for m in range(num_machines)]
        end = max((bar.finish for bar in bars), default=0.0)
        heading += f" · makespan {end:g}"
        settings = {"end": end}
    heading = heading if title is None else title
    figure = draw_gantt(bars, rows, num_jobs, title=heading, ax=ax, **{**settings, **options})
    if actions is not None:
        _separate_stages(figure.axes[0] if ax is None else ax, num_stages, per_stage)
    return figure


def _schedule_bars(state: Mapping[str, Tensor], actions: Tensor, num_stages: int) -> list[Bar]:
    schedule = trace_schedule(
        state["run_time"].unsqueeze(0),
        state["machine_table"].unsqueeze(0),
        num_stages,
        actions.unsqueeze(0),
    )
    columns = (schedule.machine, schedule.start, schedule.end, schedule.job)
    steps = zip(*(column[0].tolist() for column in columns), strict=True)
    num_jobs = state["run_time"].shape[0]
    return [
        Bar(machine, start, end, job, (str(job),))
        for machine, start, end, job in steps
        if job < num_jobs
    ]


def _job_bars(state: Mapping[str, Tensor], num_stages: int) -> list[Bar]:
    means = state["run_time"].double().unflatten(-1, (num_stages, -1)).mean(-1)  # [J, S]
    ends = means.cumsum(-1)
    return [
        Bar(job, end - mean, end, job, (f"stage {stage}", str(stage)))
        for job, (job_means, job_ends) in enumerate(zip(means.tolist(), ends.tolist(), strict=True))
        for stage, (mean, end) in enumerate(zip(job_means, job_ends, strict=True))
    ]


def _separate_stages(ax: Axes, num_stages: int, per_stage: int) -> None:
    """A line between stages, and their names on the left."""
    for stage in range(num_stages):
        if stage:
            ax.axhline(stage * per_stage - 0.5, color=MUTED, linewidth=0.9, zorder=2)
        ax.annotate(
            f"stage {stage}", (0, (stage + 0.5) * per_stage - 0.5), xytext=(-26, 0),
            xycoords=("axes fraction", "data"), textcoords="offset points", color=MUTED,
            fontsize=8, rotation=90, ha="right", va="center", annotation_clip=False,
        )  # fmt: skip
