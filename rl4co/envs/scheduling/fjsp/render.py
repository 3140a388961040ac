"""Figure of one job shop: the Gantt chart of a schedule, or the jobs alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl4co.envs.rendering import count_of
from rl4co.envs.scheduling._gantt import Bar, draw_gantt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from rl4co.envs.scheduling._parts import Schedule


def render(
    state: Mapping[str, Tensor],
    schedule: Schedule | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    **options: Any,
) -> Figure:
    """Draws the schedule, machines as rows; without one, the jobs as rows of operations.

    Operations are labelled with job and place in the job where there is room. Without a schedule,
    each is as long as its mean processing time, and is labelled with its eligible machines.
    """
    pad = state["pad_mask"].tolist()  # [O]
    num_jobs = sum(not pad[op] for op in state["start_op_per_job"].tolist())
    num_machines = state["proc_times"].shape[0]
    heading = f"{count_of(num_jobs, 'job')} · {count_of(num_machines, 'machine')}"
    if schedule is None:
        bars, rows = _job_bars(state, num_jobs), [f"job {job}" for job in range(num_jobs)]
        settings: dict[str, Any] = {"xlabel": "mean processing time", "legend": False}
    else:
        bars = _schedule_bars(state, schedule)
        rows = [f"machine {machine}" for machine in range(num_machines)]
        end = max((bar.finish for bar in bars), default=0.0)
        heading += f" · makespan {end:g}"
        settings = {"end": end}
    heading = heading if title is None else title
    return draw_gantt(bars, rows, num_jobs, title=heading, ax=ax, **{**settings, **options})


def _schedule_bars(state: Mapping[str, Tensor], schedule: Schedule) -> list[Bar]:
    pad = state["pad_mask"].tolist()
    columns = zip(
        schedule.machines.tolist(),
        schedule.start_times.tolist(),
        schedule.finish_times.tolist(),
        state["ops_job_map"].tolist(),
        state["ops_sequence_order"].tolist(),
        strict=True,
    )
    return [
        Bar(machine, start, finish, job, (f"{job}:{place}", f"{job}"))
        for padding, (machine, start, finish, job, place) in zip(pad, columns, strict=True)
        if not padding and finish < float("inf")
    ]


def _job_bars(state: Mapping[str, Tensor], num_jobs: int) -> list[Bar]:
    times, eligible = state["op_times"].tolist(), (state["proc_times"] > 0).t().tolist()  # [O]
    bars = []
    for job in range(num_jobs):
        begin = 0.0
        first, last = int(state["start_op_per_job"][job]), int(state["end_op_per_job"][job])
        for op in range(first, last + 1):
            machines = [str(machine) for machine, usable in enumerate(eligible[op]) if usable]
            labels = (f"M {','.join(machines)}", ",".join(machines))
            bars.append(Bar(job, begin, begin + times[op], job, labels))
            begin += times[op]
    return bars
