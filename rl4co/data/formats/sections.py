"""Files of the TSPLIB family: lines `KEYWORD : value`, then sections of numbers.

TSPLIB, CVRPLIB, VRPLIB and OPLib share this form, the naming of nodes and the forms of costs;
their readers differ in the sections that they support.
"""

from __future__ import annotations

import dataclasses
import re

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rl4co.core.errors import FileFormatError
from rl4co.data.formats.distances import EDGE_WEIGHT_TYPES, EdgeCosts, FloatArray
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

_HEADER = re.compile(r"^([A-Za-z][A-Za-z0-9_ ]*?)\s*:\s*(.*)$")
_SECTION = re.compile(r"^([A-Z][A-Z0-9_]*_SECTION)\s*:?\s*(.*)$")

#: EDGE_WEIGHT_FORMAT → which entries of a matrix are listed, row by row. The columns of one
#: triangle of a symmetric matrix are the rows of the other.
TRIANGLES: Mapping[str, tuple[str, int]] = {
    "UPPER_ROW": ("upper", 1),
    "LOWER_ROW": ("lower", 1),
    "UPPER_DIAG_ROW": ("upper", 0),
    "LOWER_DIAG_ROW": ("lower", 0),
    "UPPER_COL": ("lower", 1),
    "LOWER_COL": ("upper", 1),
    "UPPER_DIAG_COL": ("lower", 0),
    "LOWER_DIAG_COL": ("upper", 0),
}

#: Sections that give the nodes and the costs between them.
PLACE_SECTIONS = ("NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION")

Row = tuple[int, list[str]]


def node_name(word: str) -> str:
    """The name of a node, without leading zeros: some files have 0001 here and 1 there."""
    return str(int(word)) if word.isdecimal() else word


def looks_like_sections(source: Source) -> bool:
    """Whether a file begins with a line of the form `KEYWORD : value`."""
    first = next(line.strip() for line in source.lines if line.strip())
    match = _HEADER.match(first)
    return bool(_SECTION.match(first)) or (match is not None and match[1].isupper())


@dataclasses.dataclass(frozen=True)
class Sections:
    """The parts of a file.

    Attributes:
        source: The file.
        header: Keyword → value.
        header_lines: Keyword → number of its line.
        rows: Section → its lines, each with its number and words.
        section_lines: Section → number of the line with its name.
    """

    source: Source
    header: Mapping[str, str]
    header_lines: Mapping[str, int]
    rows: Mapping[str, Sequence[Row]]
    section_lines: Mapping[str, int]

    @classmethod
    def parse(cls, source: Source) -> Sections:
        """Split a file into its parts, without interpreting them."""
        header: dict[str, str] = {}
        header_lines: dict[str, int] = {}
        rows: dict[str, list[Row]] = {}
        section_lines: dict[str, int] = {}
        section = None
        for number, raw in enumerate(source.lines, start=1):
            line = raw.strip()
            if line == "EOF":
                break
            if not line:
                continue
            begins = _SECTION.match(line)
            keyword = None if begins else _HEADER.match(line)
            if begins:
                section = begins[1]
                if section in rows:
                    raise source.fault(
                        "each section once", f"a second {section}", CORRECT, line=number
                    )
                rows[section], section_lines[section] = [], number
                if begins[2]:
                    rows[section].append((number, begins[2].split()))
            elif keyword:
                header.setdefault(keyword[1].upper(), keyword[2].strip())
                header_lines.setdefault(keyword[1].upper(), number)
            elif section:
                rows[section].append((number, line.split()))
            else:
                raise source.fault(
                    "a line 'KEYWORD : value' or the name of a section",
                    repr(line[:60]),
                    CORRECT,
                    line=number,
                )
        return cls(source, header, header_lines, rows, section_lines)

    def fault(
        self, place: str, expected: str, got: object, remedy: str = CORRECT, line: int | None = None
    ) -> FileFormatError:
        """The error for a fault in a section or in the value of a keyword.

        Args:
            place: Name of the section or keyword.
            expected: What should be there.
            got: What is there.
            remedy: What to do.
            line: Number of the line; None: that of the keyword or of the name of the section.
        """
        if line is None:
            line = self.section_lines.get(place, self.header_lines.get(place))
        return self.source.fault(expected, got, remedy, line=line, section=place)

    # ---------------------------------------------------------------- header

    def require(self, keyword: str) -> str:
        """The value of a keyword that must be there."""
        if not self.header.get(keyword):
            raise self.source.fault(
                f"a line '{keyword} : ...'", "none", TRUNCATED, section="header"
            )
        return self.header[keyword]

    def number(self, keyword: str) -> float:
        """The value of a keyword as a number."""
        word = self.require(keyword).split()[0]
        return self.source.numbers([word], self.header_lines[keyword], keyword)[0]

    def optional_number(self, keyword: str) -> float | None:
        """The same, None if the keyword is not there."""
        return self.number(keyword) if self.header.get(keyword) else None

    def dimension(self) -> int:
        """The number of nodes."""
        size = self.number("DIMENSION")
        # Lists of nodes are made of this size; no format has less than a character for a node.
        fits = size <= len(self.source.text)
        if not fits or size != int(size) or size < 1:
            expected = "a positive whole number" if fits else "a number of nodes that the file has"
            raise self.fault("DIMENSION", expected, repr(self.header["DIMENSION"]))
        return int(size)

    def reject_other_sections(self, supported: Collection[str]) -> None:
        """Raise for sections with data that would be ignored."""
        for section, line in self.section_lines.items():
            if section not in supported:
                raise self.source.fault(
                    f"the sections {', '.join(sorted(supported))}",
                    section,
                    "problems with this section are not supported; remove it if it says nothing",
                    line=line,
                )

    # ---------------------------------------------------------------- sections

    def lines_of(self, section: str) -> Sequence[Row]:
        """The lines of a section that must be there."""
        if section not in self.rows:
            raise self.source.fault(f"a {section}", "none", TRUNCATED)
        return self.rows[section]

    def table(self, section: str, labels: Sequence[str] | None, columns: int) -> Table:
        """Lines `node value ...` of a section, one for each node.

        Args:
            section: Its name.
            labels: Names of the nodes; None takes them from the section.
            columns: How many values each node has.
        """
        names: list[str] = []
        values: list[list[float]] = []
        for line, words in self.lines_of(section):
            if words == ["-1"]:
                break
            if len(words) != columns + 1:
                expected = f"a node and {columns} number{'s' if columns > 1 else ''}"
                raise self.fault(section, expected, repr(" ".join(words)[:60]), line=line)
            names.append(node_name(words[0]))
            values.append(self.source.numbers(words[1:], line, section))
        table = Table(tuple(names), np.array(values, dtype=np.float64).reshape(-1, columns))
        self._check_names(section, table.names, labels)
        return table if labels is None else table.ordered(labels)

    def _check_names(
        self, section: str, names: Sequence[str], labels: Sequence[str] | None
    ) -> None:
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self.fault(section, "every node once", f"node {twice} twice")
        size = self.dimension() if labels is None else len(labels)
        if len(names) != size:
            expected = f"{size} nodes, as DIMENSION says"
            raise self.fault(section, expected, len(names), TRUNCATED)
        unknown = set(names) - set(names if labels is None else labels)
        if unknown:
            raise self.fault(section, "the nodes of the other sections", f"node {min(unknown)}")

    def column(self, section: str, labels: Sequence[str]) -> FloatArray:
        """One number for each node `[N]`, in the order of `labels`."""
        return self.table(section, labels, 1).values[:, 0]

    def node_list(self, section: str) -> list[Row]:
        """Words of a list that ends with -1 or with the section; each with its line's number."""
        words = [(line, word) for line, row in self.lines_of(section) for word in row]
        ends = next((k for k, (_, word) in enumerate(words) if word == "-1"), len(words))
        return [(line, [node_name(word)]) for line, word in words[:ends]]

    def depot(self, labels: Sequence[str]) -> int:
        """Position of the only depot among the nodes."""
        section = "DEPOT_SECTION"
        depots = self.node_list(section)
        if len(depots) != 1:
            names = " ".join(word for _, (word,) in depots[:8])
            remedy = "give one node and -1; several depots are not supported"
            raise self.fault(section, "one depot", f"{len(depots)} ({names})", remedy)
        line, (name,) = depots[0]
        if name not in labels:
            raise self.fault(section, "one of the nodes", f"node {name}", line=line)
        return labels.index(name)

    # ---------------------------------------------------------------- places and costs

    def places(self, rounding: str | None = None) -> Places:
        """The nodes, where they are and what it costs to travel between them.

        Args:
            rounding: Rule for distances; None is that of the EDGE_WEIGHT_TYPE.
        """
        size, kind = self.dimension(), self.require("EDGE_WEIGHT_TYPE")
        if kind != "EXPLICIT" and kind not in EDGE_WEIGHT_TYPES:
            expected = f"one of {', '.join(sorted(('EXPLICIT', *EDGE_WEIGHT_TYPES)))}"
            remedy = "convert the file, or give a matrix (EXPLICIT)"
            raise self.fault("EDGE_WEIGHT_TYPE", expected, repr(kind), remedy)
        shown = "NODE_COORD_SECTION"
        if kind == "EXPLICIT" and shown not in self.rows:
            shown = "DISPLAY_DATA_SECTION"
        if kind == "EXPLICIT" and shown not in self.rows:
            labels = tuple(str(number) for number in range(1, size + 1))
            return Places(labels, None, EdgeCosts.of_matrix(self._matrix(size)))
        table = self.table(shown, None, 2)
        if kind == "EXPLICIT":
            costs = EdgeCosts.of_matrix(self._matrix(size))
        else:
            distance, rule = EDGE_WEIGHT_TYPES[kind]
            costs = EdgeCosts.of_points(table.values, distance, rounding or rule)
        return Places(table.names, table.values, costs)

    def _matrix(self, size: int) -> FloatArray:
        section = "EDGE_WEIGHT_SECTION"
        layout = self.require("EDGE_WEIGHT_FORMAT").split()[0]
        if layout != "FULL_MATRIX" and layout not in TRIANGLES:
            expected = f"one of {', '.join(sorted(('FULL_MATRIX', *TRIANGLES)))}"
            raise self.fault("EDGE_WEIGHT_FORMAT", expected, repr(layout), "convert the file")
        # Lines may be broken anywhere: the numbers are one stream.
        stream = [
            value
            for line, words in self.lines_of(section)
            for value in self.source.numbers(words, line, section)
        ]
        side, offset = TRIANGLES.get(layout, ("full", 0))
        count = size * size if side == "full" else size * (size + 1) // 2 - offset * size
        if len(stream) != count:
            expected = f"{count} numbers in the format {layout} for DIMENSION {size}"
            raise self.fault(section, expected, len(stream), TRUNCATED)
        if side == "full":
            return np.array(stream).reshape(size, size)
        rows, columns = (
            np.triu_indices(size, offset) if side == "upper" else np.tril_indices(size, -offset)
        )
        matrix = np.zeros((size, size))
        matrix[rows, columns] = stream
        matrix[columns, rows] = stream
        return matrix


@dataclasses.dataclass(frozen=True)
class Table:
    """Values of nodes, with the names of the nodes.

    Attributes:
        names: `[M]`.
        values: `[M, columns]`.
    """

    names: tuple[str, ...]
    values: FloatArray

    def ordered(self, labels: Sequence[str]) -> Table:
        """The same nodes in another order."""
        if self.names == tuple(labels):
            return self
        position = {name: k for k, name in enumerate(self.names)}
        return Table(tuple(labels), self.values[[position[label] for label in labels]])


@dataclasses.dataclass(frozen=True)
class Places:
    """The nodes of a file in its own order.

    Attributes:
        labels: Their names `[M]`.
        points: Coordinates `[M, 2]`, None if there are none.
        costs: Costs between them.
    """

    labels: tuple[str, ...]
    points: FloatArray | None
    costs: EdgeCosts
