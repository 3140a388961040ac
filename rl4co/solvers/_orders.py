"""Orders of operations in shops, and the schedules they stand for; needs no other package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: The operations of each job in their order: machine → processing time.
Jobs = Sequence[Sequence[Mapping[int, Any]]]
#: (job, place in the job, machine) of all operations, in the order of their starts.
Order = Sequence[tuple[int, int, int]]


def left_shifted(jobs: Jobs, order: Order) -> tuple[dict[tuple[int, int], Any], Any]:
    """Earliest starts of operations in a given order, by (job, place), and the makespan."""
    job_free: dict[int, Any] = {}
    machine_free: dict[int, Any] = {}
    starts = {}
    for job, place, machine in order:
        start = max(job_free.get(job, 0), machine_free.get(machine, 0))
        starts[job, place] = start
        job_free[job] = machine_free[machine] = start + jobs[job][place][machine]
    return starts, max(job_free.values(), default=0)
