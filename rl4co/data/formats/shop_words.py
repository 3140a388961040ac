"""The numbers of a job shop's file, read one after the other or job by job, with their places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

T = TypeVar("T")


class Words:
    """The numbers of a file one after the other, with the place where each one stands.

    Args:
        source: The file.
        lines: Numbers of the lines to read, from 1 (default: all).
        end: What comes behind the last word, for messages.
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
        """Number of all words."""
        return len(self._numbers)

    @property
    def left(self) -> int:
        """Number of words not read yet."""
        return len(self._numbers) - self._next

    @property
    def line(self) -> int:
        """Line of the last word that was read."""
        return self._lines[max(self._next - 1, 0)] if self._lines else 1

    def whole_number(self, what: str, place: str, *, low: int, high: int | None = None) -> int:
        """The next word, a whole number in a range.

        Args:
            what: What it is, for messages.
            place: Where in the instance, such as `job 2, operation 0`.
            low: Smallest number allowed.
            high: Largest number allowed.
        """
        if not self.left:
            raise self.source.fault(what, self.end, TRUNCATED, line=self.line, section=place)
        number = self._numbers[self._next]
        self._next += 1
        if number < low or (high is not None and number > high) or number != int(number):
            limits = f"{what}, a whole number from {low}" + ("" if high is None else f" to {high}")
            raise self.source.fault(limits, f"{number:g}", CORRECT, line=self.line, section=place)
        return int(number)

    def rest_of_line(self) -> list[float]:
        """The words left on the line of the last one, which are read."""
        begin, line = self._next, self.line
        while self.left and self._lines[self._next] == line:
            self._next += 1
        return self._numbers[begin : self._next]

    def lines_left(self) -> list[Words]:
        """The words not read yet, line by line; none if reading stopped inside a line."""
        lines = list(dict.fromkeys(self._lines[self._next :]))
        if self._next and self.line in lines:
            return []
        split = [Words(self.source, [line], "the end of the line") for line in lines]
        if split:
            split[-1].end = self.end
        return split

    def require_end(self, after: str, place: str | None = None) -> None:
        """Raises if there are words left.

        Args:
            after: What has been read, for messages.
            place: Where in the instance.
        """
        if self.left:
            number, line = self._numbers[self._next], self._lines[self._next]
            raise self.source.fault(
                f"{self.end} after {after}", f"{number:g}", CORRECT, line=line, section=place
            )


def read_jobs(words: Words, num_jobs: int, read_job: Callable[[Words, int], T]) -> list[T]:
    """All that is left of a file: jobs one after the other, wherever lines end.

    Where every job has a line of its own, a line with too few or too many numbers is refused by
    itself: otherwise its job would go on in the next line, and the message name another one.

    Args:
        words: The numbers, up to the first job read already.
        num_jobs: Number of jobs.
        read_job: (numbers, job) → the job, whose numbers are read.
    """
    faults: list[FileFormatError] = []
    lines = words.lines_left()
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
        jobs = [read_job(words, job) for job in range(num_jobs)]
        words.require_end(f"{num_jobs} jobs")
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
