"""Which files are job shops, and in which format: standard (JSPLIB), Taillard's or FJS.

Files in the standard and the FJS format are whole numbers, apart from remarks: the number of jobs,
of machines, and then the jobs. What the numbers say decides between the two, as the wrong reading
does not come out even; if both or none do, the suffix `.fjs` and the lengths of lines decide.
"""

from __future__ import annotations

import contextlib
import itertools
import re

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.fjs import parse_fjs
from rl4co.data.formats.jsplib import parse_jsplib
from rl4co.data.formats.shop import ShopInstance
from rl4co.data.formats.source import Source, is_number

#: The least numbers on the first line of a job: two operations, or one with the count of machines.
_SHORTEST = 4
_WHOLE = re.compile(r"-?\d+")


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


def _parse_fjs(source: Source) -> list[ShopInstance]:
    return [parse_fjs(source)]


def _has_times(source: Source) -> bool:
    """Whether there is a line `Times`, and one of numbers after it, as in Taillard's format."""
    lines = (line.strip().lower().rstrip(":") for line in source.lines if line.strip())
    pairs = itertools.pairwise(lines)
    return any(line == "times" and all(map(is_number, row.split())) for line, row in pairs)


def _filled_lines(source: Source) -> list[list[str]] | None:
    """The words of the lines that are no remarks, if the first two are those of a job shop.

    The first one has the number of jobs and of machines, and maybe the mean number of eligible
    machines, which only the FJS format has. Then jobs begin with their number of operations.
    """
    filled = (line.split() for line in source.lines if line.strip() and line.strip()[0] != "#")
    lines = [*itertools.islice(filled, 2)]
    if len(lines) < 2 or not 2 <= len(lines[0]) <= 3 or len(lines[1]) < _SHORTEST:
        return None
    head, job = lines[:2]
    counts = [*head[:2], job[0]] if len(head) == 3 else head
    # A job may have a negative time, which is refused with its place.
    whole = all(map(_WHOLE.fullmatch, (*head[:2], *job))) and is_number(head[-1])
    is_shop = whole and all(int(word) > 0 for word in counts)
    return [*lines, *filled] if is_shop else None
