"""Files that are nothing but numbers: line by line, or one after the other with their places."""

from __future__ import annotations

import itertools

from collections.abc import Callable, Sequence
from typing import TypeVar

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source, is_number

T = TypeVar("T")

#: Numbers of each line, with the number of the line.
NumberRows = list[tuple[int, list[float]]]


def row_widths(source: Source, rows: int = 3) -> tuple[int, ...]:
    """How many words the first lines have; empty if one of the words is no number."""
    filled = (line.split() for line in source.lines if line.strip())
    first = list(itertools.islice(filled, rows))
    if not all(is_number(word) for words in first for word in words):
        return ()
    return tuple(len(words) for words in first)


def number_rows(source: Source) -> NumberRows:
    """All lines that are not empty."""
    return [
        (number, source.numbers(line.split(), number))
        for number, line in enumerate(source.lines, start=1)
        if line.strip()
    ]


class NumberReader:
    """The numbers of a file one after the other, with their places for messages.

    Args:
        source: The file.
        lines: Numbers of the lines to read, from 1 (default: all).
        end: What comes behind the last number, for messages.
    """

    def __init__(
        self,
        source: Source,
        lines: Sequence[int] | None = None,
        end: str = "the end of the file",
    ) -> None:
        self.source, self.end = source, end
        self._numbers: list[float] = []
        self._lines: list[int] = []
        self._next = 0
        for line in range(1, len(source.lines) + 1) if lines is None else lines:
            text = source.lines[line - 1]
            if text.lstrip().startswith("#"):
                continue
            values = _line_numbers(source, text.split(), line)
            self._numbers += values
            self._lines += [line] * len(values)

    @property
    def count(self) -> int:
        """Number of all numbers."""
        return len(self._numbers)

    @property
    def _has_more(self) -> bool:
        return self._next < len(self._numbers)

    @property
    def _line(self) -> int:
        """Line of the last number that was read."""
        return self._lines[max(self._next - 1, 0)] if self._lines else 1

    def fault(self, expected: str, got: object, remedy: str, place: str) -> FileFormatError:
        """The error for a fault in the line of the last number."""
        return self.source.fault(expected, got, remedy, line=self._line, section=place)

    def whole_number(self, what: str, place: str, *, low: int, high: int | None = None) -> int:
        """The next number, a whole one in a range.

        Args:
            what: What it is, for messages.
            place: Where in the instance, such as `job 2, operation 0`.
            low: Smallest number allowed.
            high: Largest number allowed.
        """
        if not self._has_more:
            raise self.fault(what, self.end, TRUNCATED, place)
        number = self._numbers[self._next]
        self._next += 1
        if number < low or (high is not None and number > high) or number != int(number):
            limits = f"{what}, a whole number from {low}" + ("" if high is None else f" to {high}")
            raise self.fault(limits, f"{number:g}", CORRECT, place)
        return int(number)

    def rest_of_line(self) -> list[float]:
        """Read the numbers left on the line of the last one."""
        begin, line = self._next, self._line
        while self._has_more and self._lines[self._next] == line:
            self._next += 1
        return self._numbers[begin : self._next]

    def lines_left(self) -> list[NumberReader]:
        """The numbers not read yet, line by line; none if reading stopped inside a line."""
        lines = list(dict.fromkeys(self._lines[self._next :]))
        if self._next and self._line in lines:
            return []
        split = [NumberReader(self.source, [line], "the end of the line") for line in lines]
        if split:
            split[-1].end = self.end
        return split

    def require_end(self, after: str, place: str | None = None) -> None:
        """Raise if there are numbers left.

        Args:
            after: What has been read, for messages.
            place: Where in the instance.
        """
        if self._has_more:
            raise self.source.fault(
                f"{self.end} after {after}", f"{self._numbers[self._next]:g}", CORRECT,
                line=self._lines[self._next], section=place,
            )  # fmt: skip


def read_jobs(
    reader: NumberReader, num_jobs: int, read_job: Callable[[NumberReader, int], T]
) -> list[T]:
    """All that is left of a file: jobs one after the other, wherever lines end.

    If every job has its line, a line with too few or too many numbers raises by itself: otherwise
    its job would continue in the next line, and the message name another one.

    Args:
        reader: The numbers, up to the first job read already.
        num_jobs: Number of jobs.
        read_job: (numbers, job) → the job, whose numbers are read.
    """
    faults: list[FileFormatError] = []
    lines = reader.lines_left()
    if len(lines) == num_jobs:
        jobs: list[T] = []
        for job, line in enumerate(lines):
            try:
                jobs.append(read_job(line, job))
                line.require_end("all operations", f"job {job}")
            except FileFormatError as fault:
                faults.append(fault)
        if not faults:
            return jobs
        if len(faults) == 1:
            raise faults[0]
    try:
        jobs = [read_job(reader, job) for job in range(num_jobs)]
        reader.require_end(f"{num_jobs} jobs")
    except FileFormatError as fault:
        raise (faults[0] if faults else fault) from None
    return jobs


def _line_numbers(source: Source, words: list[str], line: int) -> Sequence[float]:
    """The numbers of a line; nearly all lines have whole ones only."""
    try:
        # Python reads `1_000` as a number; no format does.
        values = list(map(int, words))
        return source.numbers(words, line) if "_" in "".join(words) else values
    except ValueError:
        return source.numbers(words, line)
