"""Flexible job shops in the FJS format, after Brandimarte (1993).

The first line has the number of jobs, of machines, and maybe the mean number of eligible machines.
Then each job: its number of operations, and for each operation the number of eligible machines
followed by pairs of a machine and its processing time.
"""

from __future__ import annotations

import functools
import os

from rl4co.data.formats.shop import (
    Operation,
    ShopInstance,
    first_machine,
    note_no_time,
    renumber,
)
from rl4co.data.formats.shop_words import Words, read_jobs
from rl4co.data.formats.source import CORRECT, Source


def read_fjs(path: str | os.PathLike[str], *, machines_from: int | None = None) -> ShopInstance:
    """Reads a flexible job shop.

    Args:
        path: The file.
        machines_from: Number of the first machine, 0 or 1. None looks for machine 0 and for the
            last number; where neither occurs, machines count from 1.

    Raises:
        FileFormatError: The file is damaged; the message names the line, job and operation.
    """
    return parse_fjs(Source.read(path), machines_from=machines_from)


def parse_fjs(source: Source, *, machines_from: int | None = None) -> ShopInstance:
    """See :func:`read_fjs`."""
    words = Words(source)
    num_jobs = words.whole_number("number of jobs", "header", low=1)
    # Every machine is there for some operation; tables of all machines are made later on.
    num_machines = words.whole_number("number of machines", "header", low=1, high=words.count)
    words.rest_of_line()  # the mean number of eligible machines
    jobs = read_jobs(words, num_jobs, functools.partial(_read_job, num_machines=num_machines))
    offset = machines_from
    if offset is None:
        offset = first_machine(source, jobs, num_machines, default=1)
    for job, operations in enumerate(jobs):
        for number, operation in enumerate(operations):
            wrong = [m for m in operation if not offset <= m < num_machines + offset]
            if wrong:
                raise source.fault(
                    f"machines from {offset} to {num_machines + offset - 1}",
                    wrong[0],
                    CORRECT,
                    section=f"job {job}, operation {number}",
                )
    shop = ShopInstance(source.name, num_machines, renumber(jobs, offset), source.path)
    return note_no_time(shop)


def _read_job(words: Words, job: int, num_machines: int) -> list[Operation]:
    count = words.whole_number("number of operations", f"job {job}", low=1)
    return [_read_operation(words, job, number, num_machines) for number in range(count)]


def _read_operation(words: Words, job: int, number: int, num_machines: int) -> Operation:
    place = f"job {job}, operation {number}"
    count = words.whole_number("number of eligible machines", place, low=1, high=num_machines)
    operation: dict[int, int] = {}
    for _ in range(count):
        machine = words.whole_number("machine", place, low=0, high=num_machines)
        if machine in operation:
            raise words.source.fault(
                "each machine once", machine, CORRECT, line=words.line, section=place
            )
        operation[machine] = words.whole_number("processing time", place, low=0)
    if any(operation.values()) and not all(operation.values()):
        raise words.source.fault(
            "processing times from 1 (or 0 on all machines, for an operation that takes no time)",
            "0 on some machines",
            "leave out machines that cannot run the operation",
            line=words.line,
            section=place,
        )
    return operation


def format_fjs(instance: ShopInstance, *, machines_from: int = 1) -> str:
    """The text of a file, with the mean number of eligible machines in its first line.

    Args:
        instance: The instance.
        machines_from: Number of the first machine, 0 or 1.
    """
    eligible = sum(len(operation) for job in instance.jobs for operation in job)
    flexibility = round(eligible / instance.num_ops, 5)
    lines = [f"{instance.num_jobs} {instance.num_machines} {flexibility:g}"]
    for job in instance.jobs:
        words = [len(job)]
        for operation in job:
            words.append(len(operation))
            for machine, time in operation.items():
                words += [machine + machines_from, time]
        lines.append(" ".join(map(str, words)))
    return "\n".join([*lines, ""])
