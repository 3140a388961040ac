"""Job shops in files: the standard format (JSPLIB), FJS, Taillard's format, and arrays of L2D.

Standard and FJS files are whole numbers, apart from comment lines (`#`): the number of jobs, of
machines (in FJS also the mean number of eligible machines), then the jobs. A standard job has a
pair of a machine and its processing time for each machine, in the order of processing. An FJS job
has its number of operations, and for each operation its number of eligible machines and their
pairs. The numbers decide between the two, because the wrong reading does not come out even; if both
or none do, the suffix `.fjs` and the lengths of lines decide.

Taillard: a line of words and one of numbers (jobs, machines, two seeds, upper and lower bound), the
word `Times` with one line of processing times per job, and `Machines` with one line of machines
(from 1) per job. A file may have several such instances.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import re
import warnings

from collections.abc import Mapping, Sequence
from pathlib import Path

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.numbers import NumberReader, read_jobs
from rl4co.data.formats.shop import Operation, ShopInstance
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source, is_number
from rl4co.data.io import read_npy

#: The least numbers on the first line of a job: two operations, or one with the count of machines.
_SHORTEST = 4
_WHOLE = re.compile(r"-?\d+")


# ---------------------------------------------------------------- formats


def looks_like_shop(source: Source) -> bool:
    """Whether a file begins like a job shop; it may be damaged further on."""
    return _has_times(source) or _filled_lines(source) is not None


def parse_shops(source: Source) -> list[ShopInstance]:
    """All job shops of a file that looks like one; files in Taillard's format may have several.

    Raises:
        FileFormatError: The file is damaged; the message names the line, job and operation.
    """
    lines = _filled_lines(source)
    if _has_times(source) or lines is None:
        return parse_jsplib(source)
    head, *jobs = lines
    # In the standard format, a job has two numbers for each machine; some may be missing.
    standard = sum(len(job) == 2 * int(head[1]) for job in jobs)
    is_fjs = source.suffix == ".fjs" or len(head) == 3 or 2 * standard < len(jobs)
    likely, other = (_parse_fjs, parse_jsplib) if is_fjs else (parse_jsplib, _parse_fjs)
    try:
        return likely(source)
    except FileFormatError:
        with contextlib.suppress(FileFormatError):
            return other(source)
        raise


def read_jsplib(path: str | os.PathLike[str]) -> list[ShopInstance]:
    """Read the job shops of a file in the standard format (one) or Taillard's (one or more)."""
    return parse_jsplib(Source.read(path))


def parse_jsplib(source: Source) -> list[ShopInstance]:
    """See :func:`read_jsplib`."""
    if _looks_like_taillard(source):
        return [_note_no_time(shop) for shop in _parse_taillard(source)]
    return [_parse_numbers(source, is_flexible=False)]


def read_fjs(path: str | os.PathLike[str], *, machines_from: int | None = None) -> ShopInstance:
    """Read a flexible job shop.

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
    return _parse_numbers(source, is_flexible=True, machines_from=machines_from)


def _parse_fjs(source: Source) -> list[ShopInstance]:
    return [parse_fjs(source)]


def _has_times(source: Source) -> bool:
    """Whether there is a line `Times`, and one of numbers after it, as in Taillard's format."""
    lines = (line.strip().lower().rstrip(":") for line in source.lines if line.strip())
    pairs = itertools.pairwise(lines)
    return any(line == "times" and all(map(is_number, row.split())) for line, row in pairs)


def _looks_like_taillard(source: Source) -> bool:
    """Whether a file has a line of words in front, or a section of times."""
    lines = [line.strip() for line in source.lines if line.strip() and line.strip()[0] != "#"]
    return any(line.lower().startswith("times") for line in lines) or (
        bool(lines) and not any(map(is_number, lines[0].split()))
    )


def _filled_lines(source: Source) -> list[list[str]] | None:
    """The words of the lines that are no comments, if the first two are those of a job shop.

    The first one has the number of jobs and of machines, and maybe the mean number of eligible
    machines, which only the FJS format has. Then jobs begin with their number of operations.
    """
    filled = (line.split() for line in source.lines if line.strip() and line.strip()[0] != "#")
    lines = [*itertools.islice(filled, 2)]
    if len(lines) < 2 or not 2 <= len(lines[0]) <= 3 or len(lines[1]) < _SHORTEST:
        return None
    head, job = lines
    counts = [*head[:2], job[0]] if len(head) == 3 else head
    # A job may have a negative time, which raises an error with its place.
    are_integers = all(map(_WHOLE.fullmatch, (*head[:2], *job))) and is_number(head[-1])
    is_shop = are_integers and all(int(word) > 0 for word in counts)
    return [*lines, *filled] if is_shop else None


# ---------------------------------------------------------------- standard and FJS


def _parse_numbers(
    source: Source, is_flexible: bool, machines_from: int | None = None
) -> ShopInstance:
    """A job shop in the standard or the FJS format."""
    reader = NumberReader(source)
    num_jobs = reader.whole_number("number of jobs", "header", low=1)
    # Every machine occurs in some operation; tables of all machines are allocated later on.
    most = reader.count if is_flexible else None
    num_machines = reader.whole_number("number of machines", "header", low=1, high=most)
    if is_flexible:
        reader.rest_of_line()  # the mean number of eligible machines
    read_job = functools.partial(_read_job, num_machines=num_machines, is_flexible=is_flexible)
    jobs = read_jobs(reader, num_jobs, read_job)
    shop = _renumbered(source, source.name, num_machines, jobs, int(is_flexible), machines_from)
    return _note_no_time(shop)


def _read_job(
    reader: NumberReader, job: int, num_machines: int, is_flexible: bool
) -> list[Operation]:
    count = num_machines
    if is_flexible:
        count = reader.whole_number("number of operations", f"job {job}", low=1)
    places = (f"job {job}, operation {number}" for number in range(count))
    return [_read_operation(reader, place, num_machines, is_flexible) for place in places]


def _read_operation(
    reader: NumberReader, place: str, num_machines: int, is_flexible: bool
) -> Operation:
    count = 1
    if is_flexible:
        count = reader.whole_number("number of eligible machines", place, low=1, high=num_machines)
    operation: dict[int, int] = {}
    for _ in range(count):
        machine = reader.whole_number("machine", place, low=0, high=num_machines)
        if machine in operation:
            raise reader.fault("each machine once", machine, CORRECT, place)
        operation[machine] = reader.whole_number("processing time", place, low=0)
    if any(operation.values()) and not all(operation.values()):
        expected = "processing times from 1 (or 0 on all machines, if the operation takes no time)"
        remedy = "leave out machines that cannot run the operation"
        raise reader.fault(expected, "0 on some machines", remedy, place)
    return operation


def _renumbered(
    source: Source,
    name: str,
    num_machines: int,
    jobs: Sequence[Sequence[Operation]],
    default: int,
    machines_from: int | None = None,
) -> ShopInstance:
    """The instance with machines from 0.

    Args:
        source: The file.
        name: Name of the instance.
        num_machines: Number of machines.
        jobs: Operations with the machines as numbered in the file.
        default: Number of the first machine if neither 0 nor the last number occurs.
        machines_from: Number of the first machine, if it is known.
    """
    used = {machine for job in jobs for operation in job for machine in operation}
    first = machines_from
    if first is None and {0, num_machines} <= used:
        raise source.fault(
            f"machines from 0 to {num_machines - 1} or from 1 to {num_machines}",
            f"0 and {num_machines}",
            CORRECT,
        )
    if first is None:
        first = 0 if 0 in used else 1 if num_machines in used else default
    for job, operations in enumerate(jobs):
        for number, operation in enumerate(operations):
            outside = [m for m in operation if not first <= m < num_machines + first]
            if outside:
                raise source.fault(
                    f"machines from {first} to {num_machines + first - 1}", outside[0], CORRECT,
                    section=f"job {job}, operation {number}",
                )  # fmt: skip
    shifted = (
        tuple({machine - first: time for machine, time in operation.items()} for operation in job)
        for job in jobs
    )
    return ShopInstance(name, num_machines, tuple(shifted), source.path)


def _note_no_time(shop: ShopInstance) -> ShopInstance:
    """The same instance; warns of operations that take no time, which tensors leave out."""
    places = [
        f"job {job}, operation {number}"
        for job, operations in enumerate(shop.jobs)
        for number, operation in enumerate(operations)
        if not any(operation.values())
    ]
    if places:
        more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
        warnings.warn(
            f"{shop.source}, {places[0]}{more}: expected a processing time from 1, got 0; "
            "environments leave out what takes no time, which needs no machine",
            stacklevel=2,
        )
    return shop


# ---------------------------------------------------------------- Taillard


def _parse_taillard(source: Source) -> list[ShopInstance]:
    blocks: list[dict[str, list[int]]] = []
    part = "machines"
    for number, line in enumerate(source.lines, start=1):
        title = line.strip().lower().rstrip(":")
        has_numbers = all(map(is_number, title.split()))
        if title in ("times", "machines"):
            part = title
        elif not has_numbers:
            part = "header"
        if not blocks or (part == "header" and blocks[-1]["machines"]):
            blocks.append({"header": [], "times": [], "machines": []})
            part = "header" if part == "machines" else part
        if title and has_numbers:
            blocks[-1][part].append(number)
    names = [f"{source.name}_{k}" for k in range(1, len(blocks) + 1)]
    if len(blocks) == 1:
        names = [source.name]
    return [_parse_block(source, *pair) for pair in zip(blocks, names, strict=True)]


def _parse_block(source: Source, parts: Mapping[str, Sequence[int]], name: str) -> ShopInstance:
    """One instance from the numbers of the lines in its three parts."""
    header = NumberReader(source, parts["header"])
    num_jobs = header.whole_number("number of jobs", "header", low=1)
    num_machines = header.whole_number("number of machines", "header", low=1)
    header_values = header.rest_of_line()
    times = _read_table(source, parts["times"], "Times", num_jobs, num_machines)
    machines = _read_table(source, parts["machines"], "Machines", num_jobs, num_machines)
    jobs = [
        [{machine: time} for machine, time in zip(*rows, strict=True)]
        for rows in zip(machines, times, strict=True)
    ]
    upper, lower = header_values[2:4] if len(header_values) >= 4 else (None, None)
    shop = _renumbered(source, name, num_machines, jobs, default=1)
    return dataclasses.replace(shop, lower_bound=lower or None, upper_bound=upper or None)


def _read_table(
    source: Source, lines: Sequence[int], title: str, num_jobs: int, num_machines: int
) -> list[list[int]]:
    if not lines:
        raise source.fault(f"a section {title}", "none", TRUNCATED)
    what, high = ("processing time", None) if title == "Times" else ("machine", num_machines)

    def read_row(reader: NumberReader, job: int) -> list[int]:
        places = (f"{title}, job {job}, operation {number}" for number in range(num_machines))
        return [reader.whole_number(what, place, low=0, high=high) for place in places]

    return read_jobs(NumberReader(source, lines), num_jobs, read_row)


# ---------------------------------------------------------------- arrays


def read_l2d(path: str | os.PathLike[str]) -> list[ShopInstance]:
    """The test sets of Zhang et al. (2020): an array `[B, 2, J, M]` of times and machines from 1.

    Args:
        path: `.npy` file.

    Raises:
        FileFormatError: The array is damaged or has another shape.
    """
    source = Source(Path(path), "", ())
    try:
        array = read_npy(path)
    except FileFormatError:
        raise
    except ValueError as error:
        raise source.fault("an array of numbers", str(error), TRUNCATED) from None
    if array.ndim != 4 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise source.fault(
            "whole numbers of shape [B, 2, J, M]", f"{array.dtype} of {array.shape}", CORRECT
        )
    num_machines = array.shape[-1]
    if (array < 1).any() or (array[:, 1] > num_machines).any():
        raise source.fault(
            f"processing times from 1 and machines from 1 to {num_machines}", "others", CORRECT
        )
    shops = []
    for k, (times, machines) in enumerate(array.tolist()):
        jobs = tuple(
            tuple({machine - 1: time} for machine, time in zip(*rows, strict=True))
            for rows in zip(machines, times, strict=True)
        )
        shops.append(ShopInstance(f"{source.name}_{k}", num_machines, jobs, source.path))
    return shops
