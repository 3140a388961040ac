"""Whether a schedule keeps the constraints of a job shop, exactly, and where it does not.

This is independent of the environments: schedules are checked while their files are read.
"""

from __future__ import annotations

import itertools

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rl4co.data.formats.feasibility import Violation

if TYPE_CHECKING:
    from rl4co.data.formats.schedules import Schedule
    from rl4co.data.formats.shop import ShopInstance


def find_violation(shop: ShopInstance, schedule: Schedule) -> Violation | None:
    """The first broken rule, or None for a valid schedule."""
    return next(misplaced(shop, schedule), None) or next(_mistimed(shop, schedule), None)


def misplaced(shop: ShopInstance, schedule: Schedule) -> Iterator[Violation]:
    """Operations that are missing, or on machines that cannot run them."""
    rule = "every operation is scheduled once"
    if len(schedule) != shop.num_jobs:
        yield Violation(rule, f"{len(schedule)} of {shop.num_jobs} jobs")
        return
    for number, (slots, job) in enumerate(zip(schedule, shop.jobs, strict=True)):
        if len(slots) != len(job):
            yield Violation(rule, f"job {number}: {len(slots)} of {len(job)} operations")
            return
        for place, ((machine, _), operation) in enumerate(zip(slots, job, strict=True)):
            if machine not in operation:
                yield Violation(
                    "every operation runs on a machine that can run it",
                    f"job {number}, operation {place}: machine {machine}, "
                    f"not {' or '.join(map(str, sorted(operation)))}",
                )


def _mistimed(shop: ShopInstance, schedule: Schedule) -> Iterator[Violation]:
    """Operations that start too early, or while their machine runs another one."""
    on_machine: dict[int, list[tuple[int, int, str]]] = {}
    for number, (slots, job) in enumerate(zip(schedule, shop.jobs, strict=True)):
        free = 0
        for place, ((machine, start), operation) in enumerate(zip(slots, job, strict=True)):
            name, end = f"job {number}, operation {place}", start + operation[machine]
            if start < free:
                rule = "an operation starts after the one before it in its job has ended"
                rule = rule if place else "no operation starts before time 0"
                yield Violation(rule, f"{name}: a start at {start}, before {free}")
            free = end
            if end > start:
                on_machine.setdefault(machine, []).append((start, end, name))
    for machine, runs in sorted(on_machine.items()):
        runs.sort()
        for (_, end, first), (start, _, second) in itertools.pairwise(runs):
            if start < end:
                yield Violation(
                    "a machine runs one operation at a time",
                    f"machine {machine}: {second} at {start}, while {first} runs until {end}",
                )
