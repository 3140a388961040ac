"""Files that are nothing but lines of numbers."""

from __future__ import annotations

import itertools

from rl4co.data.formats.source import Source, is_number

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
