"""Job shops: the standard format of JSPLIB, and the format of Taillard (1993).

Standard: lines with `#` are remarks; then the number of jobs and machines, and for each job one
pair of a machine and its processing time per machine, in the order of processing.

Taillard: a line of words and one of numbers (jobs, machines, two seeds, upper and lower bound), the
word `Times` with one line of processing times per job, and `Machines` with one line of machines
(from 1) per job. A file may have several such instances.
"""

from __future__ import annotations

import functools
import os

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rl4co.core.errors import InvalidInstanceError
from rl4co.data.formats.shop import (
    Operation,
    ShopInstance,
    first_machine,
    note_no_time,
    renumber,
)
from rl4co.data.formats.shop_words import Words, read_jobs
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source, is_number
from rl4co.data.io import check_array_size
from rl4co.data.size_limit import check_input_size


def read_jsplib(path: str | os.PathLike[str]) -> list[ShopInstance]:
    """Reads the job shops of a file in the standard format (one) or Taillard's (one or more).

    Raises:
        FileFormatError: The file is damaged; the message names the line, job and operation.
    """
    return parse_jsplib(Source.read(path))


def parse_jsplib(source: Source) -> list[ShopInstance]:
    """See :func:`read_jsplib`."""
    if looks_like_taillard(source):
        return [note_no_time(shop) for shop in _parse_taillard(source)]
    words = Words(source)
    num_jobs = words.whole_number("number of jobs", "header", low=1)
    num_machines = words.whole_number("number of machines", "header", low=1)
    jobs = read_jobs(words, num_jobs, functools.partial(_read_job, num_machines=num_machines))
    offset = first_machine(source, jobs, num_machines, default=0)
    shop = ShopInstance(source.name, num_machines, renumber(jobs, offset), source.path)
    return [note_no_time(shop)]


def _read_job(words: Words, job: int, num_machines: int) -> list[Operation]:
    operations: list[Operation] = []
    for number in range(num_machines):
        place = f"job {job}, operation {number}"
        machine = words.whole_number("machine", place, low=0, high=num_machines)
        operations.append({machine: words.whole_number("processing time", place, low=0)})
    return operations


# ---------------------------------------------------------------- Taillard


def looks_like_taillard(source: Source) -> bool:
    """Whether a file has a line of words in front, or a section of times."""
    lines = [line.strip() for line in source.lines if line.strip() and line.strip()[0] != "#"]
    return any(line.lower().startswith("times") for line in lines) or (
        bool(lines) and not any(map(is_number, lines[0].split()))
    )


def _parse_taillard(source: Source) -> list[ShopInstance]:
    blocks: list[dict[str, list[int]]] = []
    current = "machines"
    for number, line in enumerate(source.lines, start=1):
        title = line.strip().lower().rstrip(":")
        if title in ("times", "machines"):
            current = title
        elif title and not all(map(is_number, title.split())):
            current = "header"
        if current == "header" and (not blocks or blocks[-1]["machines"]):
            blocks.append({"header": [], "times": [], "machines": []})
        elif not blocks:
            blocks.append({"header": [], "times": [], "machines": []})
            current = "header" if current == "machines" else current
        if title and all(map(is_number, title.split())):
            blocks[-1][current].append(number)
    names = [f"{source.name}_{k}" for k in range(1, len(blocks) + 1)]
    if len(blocks) == 1:
        names = [source.name]
    return [_parse_block(source, *pair) for pair in zip(blocks, names, strict=True)]


def _parse_block(source: Source, parts: dict[str, list[int]], name: str) -> ShopInstance:
    """One instance from the numbers of the lines in its three parts."""
    header = Words(source, parts["header"])
    num_jobs = header.whole_number("number of jobs", "header", low=1)
    num_machines = header.whole_number("number of machines", "header", low=1)
    rest = header.rest_of_line()
    times = _read_table(source, parts["times"], "Times", num_jobs, num_machines)
    machines = _read_table(source, parts["machines"], "Machines", num_jobs, num_machines)
    jobs = [
        [{machine: time} for machine, time in zip(*rows, strict=True)]
        for rows in zip(machines, times, strict=True)
    ]
    offset = first_machine(source, jobs, num_machines, default=1)
    upper, lower = rest[2:4] if len(rest) >= 4 else (None, None)
    return ShopInstance(
        name, num_machines, renumber(jobs, offset), source.path, lower or None, upper or None
    )


def _read_table(
    source: Source, lines: Sequence[int], title: str, num_jobs: int, num_machines: int
) -> list[list[int]]:
    if not lines:
        raise source.fault(f"a section {title}", "none", TRUNCATED)
    words = Words(source, lines)
    what, high = ("processing time", None) if title == "Times" else ("machine", num_machines)

    def read_row(words: Words, job: int) -> list[int]:
        place = f"{title}, job {job}, operation "
        return [
            words.whole_number(what, f"{place}{number}", low=0, high=high)
            for number in range(num_machines)
        ]

    return read_jobs(words, num_jobs, read_row)


# ---------------------------------------------------------------- writing


def format_jsplib(instance: ShopInstance) -> str:
    """The text of a file in the standard format, machines from 0.

    The format has as many operations in each job as there are machines: a shorter job ends with
    operations that take no time, on machines that it does not visit. Reading leaves them out again.

    Raises:
        InvalidInstanceError: An operation has several machines, or a job more operations than there
            are machines; the FJS format has room for both.
    """
    lines = [f"# instance {instance.name}", f"{instance.num_jobs} {instance.num_machines}"]
    for row in _pairs(instance):
        lines.append(" ".join(f"{machine} {time}" for machine, time in row))
    return "\n".join([*lines, ""])


def format_taillard(instance: ShopInstance) -> str:
    """The text of a file in Taillard's format, machines from 1; bounds that are not known are 0.

    Raises:
        InvalidInstanceError: See :func:`format_jsplib`.
    """
    rows = _pairs(instance)
    bounds = [f"{instance.upper_bound or 0:g}", f"{instance.lower_bound or 0:g}"]
    lines = [
        "Nb of jobs, Nb of Machines, Time seed, Machine seed, Upper bound, Lower bound",
        " ".join([str(instance.num_jobs), str(instance.num_machines), "0", "0", *bounds]),
        "Times",
        *(" ".join(str(time) for _, time in row) for row in rows),
        "Machines",
        *(" ".join(str(machine + 1) for machine, _ in row) for row in rows),
    ]
    return "\n".join([*lines, ""])


def _pairs(instance: ShopInstance) -> list[list[tuple[int, int]]]:
    """Machine and processing time of each operation, as many in each job as there are machines."""
    count = instance.num_machines
    rows = []
    for number, job in enumerate(instance.jobs):
        if len(job) > count or any(len(operation) != 1 for operation in job):
            most = max(len(operation) for operation in job)
            raise InvalidInstanceError(
                f"expected at most {count} operations with one machine each in every job, got "
                f"{len(job)} with up to {most} in job {number} of {instance.name}; "
                "write it in the FJS format"
            )
        row = [next(iter(operation.items())) for operation in job]
        visited = {machine for machine, _ in row}
        others = [machine for machine in range(count) if machine not in visited]
        rows.append(row + [(machine, 0) for machine in others[: count - len(row)]])
    return rows


# ---------------------------------------------------------------- arrays


def read_l2d(path: str | os.PathLike[str]) -> list[ShopInstance]:
    """The test sets of Zhang et al. (2020): an array `[B, 2, J, M]` of times and machines from 1.

    Args:
        path: `.npy` file.

    Raises:
        FileFormatError: The array is damaged or has another shape.
    """
    with open(path, "rb") as file:
        source = Source(Path(path), "", ())
        size = os.fstat(file.fileno()).st_size
        check_input_size(size, path)
        try:
            check_array_size(file, size)
            file.seek(0)
            array = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise source.fault("an array of numbers", str(error), TRUNCATED) from None
    if array.ndim != 4 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise source.fault(
            "whole numbers of shape [B, 2, J, M]", f"{array.dtype} of {array.shape}", CORRECT
        )
    times, machines = array[:, 0], array[:, 1]
    num_machines = array.shape[-1]
    if (times < 1).any() or (machines < 1).any() or (machines > num_machines).any():
        raise source.fault(
            f"processing times from 1 and machines from 1 to {num_machines}", "others", CORRECT
        )
    return [
        ShopInstance(
            f"{source.name}_{k}",
            num_machines,
            tuple(
                tuple({int(m) - 1: int(t)} for m, t in zip(job_machines, job_times, strict=True))
                for job_machines, job_times in zip(machines[k], times[k], strict=True)
            ),
            source.path,
        )
        for k in range(len(array))
    ]
