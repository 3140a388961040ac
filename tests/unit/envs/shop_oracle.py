"""Job shops in plain Python, to hold the environments against; shares no code with them."""

from __future__ import annotations

import itertools

from collections.abc import Iterator
from typing import Any

Jobs = list[list[dict[int, float]]]  # job → operation → machine → processing time
Placed = tuple[tuple[float, int], ...]  # start and machine of each operation, job after job


def jobs_of(instance: Any) -> Jobs:
    """The jobs of one instance (a TensorDict without batch axis)."""
    times, pad = instance["proc_times"].double().tolist(), instance["pad_mask"].tolist()
    ranges = zip(
        instance["start_op_per_job"].tolist(), instance["end_op_per_job"].tolist(), strict=True
    )
    return [
        [
            {m: row[op] for m, row in enumerate(times) if row[op] > 0}
            for op in range(first, last + 1)
        ]
        for first, last in ranges
        if not pad[first]
    ]


class Shop:
    """A shop floor with a clock: the documented rules, one instance, step by step."""

    def __init__(self, jobs: Jobs, num_machines: int, may_wait: bool) -> None:
        self.jobs, self.may_wait = jobs, may_wait
        self.machine_free = [0.0] * num_machines
        self.runs: list[list[tuple[float, float, int]]] = [[] for _ in jobs]
        self.time = 0.0

    def job_free(self, job: int) -> float:
        return self.runs[job][-1][1] if self.runs[job] else 0.0

    def pairs(self) -> Iterator[tuple[int, int, float]]:
        """Job, machine and time at which the next operations could start."""
        for job, operations in enumerate(self.jobs):
            if len(self.runs[job]) < len(operations):
                for machine in operations[len(self.runs[job])]:
                    yield job, machine, max(self.job_free(job), self.machine_free[machine])

    @property
    def done(self) -> bool:
        return all(len(runs) == len(ops) for runs, ops in zip(self.runs, self.jobs, strict=True))

    @property
    def makespan(self) -> float:
        return max(end for runs in self.runs for _, end, _ in runs)

    def allowed(self) -> set[tuple[int, int] | None]:
        """Job-machine pairs that can start now, and None for waiting."""
        if self.done:
            return {None}
        choices: set[tuple[int, int] | None] = {
            (job, machine) for job, machine, when in self.pairs() if when <= self.time
        }
        if self.may_wait and any(end > self.time for end in self.machine_free):
            choices.add(None)
        return choices

    def act(self, choice: tuple[int, int] | None) -> None:
        if self.done:
            return
        if choice is None:
            self.time = min(end for end in self.machine_free if end > self.time)
        else:
            job, machine = choice
            end = self.time + self.jobs[job][len(self.runs[job])][machine]
            self.runs[job].append((self.time, end, machine))
            self.machine_free[machine] = end
        if self.done:
            self.time = self.makespan
        else:
            self.time = max(self.time, min(when for _, _, when in self.pairs()))

    def placed(self) -> Placed:
        return tuple((start, machine) for runs in self.runs for start, _, machine in runs)


def semi_active_schedules(jobs: Jobs) -> dict[Placed, float]:
    """All schedules in which no operation can start earlier in the same order, with makespans."""
    names = [job for job, operations in enumerate(jobs) for _ in operations]
    found: dict[Placed, float] = {}
    for order in set(itertools.permutations(names)):
        turns: list[tuple[int, dict[int, float]]] = []
        taken = [0] * len(jobs)
        for job in order:
            turns.append((job, jobs[job][taken[job]]))
            taken[job] += 1
        for machines in itertools.product(*(operation for _, operation in turns)):
            job_free, machine_free = [0.0] * len(jobs), dict.fromkeys(machines, 0.0)
            runs: list[list[tuple[float, int]]] = [[] for _ in jobs]
            for (job, operation), machine in zip(turns, machines, strict=True):
                start = max(job_free[job], machine_free[machine])
                job_free[job] = machine_free[machine] = start + operation[machine]
                runs[job].append((start, machine))
            found[tuple(run for own in runs for run in own)] = max(job_free)
    return found


def is_non_delay(jobs: Jobs, placed: Placed) -> bool:
    """Whether no machine is idle while it could run an operation that starts later."""
    operations = [operation for job in jobs for operation in job]
    ends = [s + op[m] for (s, m), op in zip(placed, operations, strict=True)]
    events = {0.0, *ends}
    position = 0
    for job in jobs:
        for place in range(len(job)):
            start, _ = placed[position]
            ready = ends[position - 1] if place else 0.0
            for event in events:
                if not ready <= event < start:
                    continue
                for machine in job[place]:
                    busy = any(
                        m == machine and s <= event < e
                        for (s, m), e in zip(placed, ends, strict=True)
                    )
                    if not busy:
                        return False
            position += 1
    return True
