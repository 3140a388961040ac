"""A text file being read: its lines, and errors that say where in it something is wrong."""

from __future__ import annotations

import dataclasses
import math
import os
import re

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl4co.core.errors import FileFormatError
from rl4co.core.memory import exceeds_memory
from rl4co.core.text import printable
from rl4co.data.formats.content import STDIN, name_of, read_content, suffix_of

#: Ends of lines as other systems and line printers have them.
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c]")
#: Remedies that fit many faults.
TRUNCATED = "the file is truncated or damaged: get it again from its source"
CORRECT = "correct the file"

#: Memory that a short line takes while it is parsed, rather more than less.
_BYTES_PER_LINE = 512
#: More digits than any number has that can be computed with.
_ENDLESS = re.compile(r"[0-9]{310,}")


@dataclasses.dataclass(frozen=True)
class Source:
    """A file and its lines.

    Attributes:
        path: The file.
        text: All of it.
        lines: The lines without their ends; line 1 is `lines[0]`.
    """

    path: Path
    text: str
    lines: tuple[str, ...]

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Source:
        """Read a file as text (UTF-8, else Latin-1, which old benchmark files are written in).

        Control characters, which a terminal would execute, become question marks.

        Args:
            path: The file, perhaps compressed by gzip, or `-`, the standard input.
        """
        file, content = Path(path), read_content(path)
        num_lines = content.count(b"\n") + content.count(b"\r")
        if exceeds_memory(num_lines * _BYTES_PER_LINE):
            raise cls(file, "", ()).fault(
                "lines that fit into memory", f"{num_lines:,}", "give the file of one instance"
            )
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        if "\0" not in text:
            text = printable(_LINE_ENDS.sub("\n", text))
        source = cls(file, text, tuple(text.splitlines()))
        if "\0" in text:
            raise source.fault("a text file", "binary data", "give a file in one of the formats")
        if not text.strip():
            raise source.fault("an instance or a solution", "an empty file", TRUNCATED)
        if endless := _ENDLESS.search(text):
            digits = f"one of {len(endless[0])} digits"
            raise source.fault("numbers that can be computed with", digits, CORRECT)
        return source

    @property
    def name(self) -> str:
        """Default name of the instance: the name of its file without `.vrp.gz`."""
        return name_of(self.path)

    @property
    def suffix(self) -> str:
        """Suffix that names the format, in lower case; none of the standard input."""
        return suffix_of(self.path)

    def fault(
        self,
        expected: str,
        got: object,
        remedy: str,
        *,
        line: int | None = None,
        section: str | None = None,
    ) -> FileFormatError:
        """The error for a fault of this file.

        Args:
            expected: What should be there.
            got: What is there.
            remedy: What to do.
            line: Number of the line, from 1.
            section: Name of the section or key.
        """
        places = ["standard input" if self.path == STDIN else str(self.path)]
        places += [f"line {line}"] if line is not None else []
        places += [str(section)] if section is not None else []
        return FileFormatError(f"{', '.join(places)}: expected {expected}, got {got}; {remedy}")

    def require_distinct(self, names: Sequence[str], expected: str, **place: Any) -> None:
        """Raises if a name occurs twice; `place` is that of :meth:`fault`."""
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.fault(expected, f"{twice!r} twice", CORRECT, **place)

    def numbers(self, tokens: Sequence[str], line: int, section: str | None = None) -> list[float]:
        """Finite numbers from the words of one line."""
        try:
            values = [float(token) for token in tokens]
        except ValueError:
            values = []
        # Python reads `1_000`, `nan` and `inf` as numbers; no format does.
        if len(values) != len(tokens) or "_" in "".join(tokens):
            wrong = next(token for token in tokens if not is_number(token))
            raise self.fault("numbers", repr(_cut(wrong)), CORRECT, line=line, section=section)
        if not all(map(math.isfinite, values)):
            wrong = next(
                token for token, x in zip(tokens, values, strict=True) if not math.isfinite(x)
            )
            raise self.fault("finite numbers", repr(wrong), CORRECT, line=line, section=section)
        return values

    def integers(self, tokens: Sequence[str], line: int, section: str | None = None) -> list[int]:
        """Whole numbers from the words of one line."""
        values = self.numbers(tokens, line, section)
        for token, value in zip(tokens, values, strict=True):
            if value != int(value):
                raise self.fault("whole numbers", repr(token), CORRECT, line=line, section=section)
        return [int(value) for value in values]


def is_number(token: str) -> bool:
    """Whether a word is a number in any of the formats."""
    try:
        float(token)
    except ValueError:
        return False
    return "_" not in token


def _cut(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[:length]}..."
