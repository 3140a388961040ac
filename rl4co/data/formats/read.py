"""`read_instance`: an instance from a file of any known format.

The format is recognised by the content; suffixes matter for JSON and CSV only. Reading needs no
other library and never runs code from a file.
"""

from __future__ import annotations

import csv
import dataclasses
import os

from collections.abc import Callable, Mapping
from pathlib import Path

from rl4co.core.errors import InvalidInstanceError
from rl4co.data.formats import cvrplib, oplib, tsplib
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.lilim import looks_like_lilim, read_lilim
from rl4co.data.formats.orienteering import looks_like_orienteering, read_orienteering
from rl4co.data.formats.own import read_csv, read_json
from rl4co.data.formats.sections import Sections, looks_like_sections
from rl4co.data.formats.solomon import looks_like_solomon, read_solomon
from rl4co.data.formats.source import CORRECT, Source
from rl4co.data.formats.tsppd import looks_like_tsppd, read_tsppd

SUFFIXES: Mapping[str, Callable[[Source], BenchmarkInstance]] = {
    ".json": read_json,
    ".csv": read_csv,
}

#: What solution files are called that lie beside their instances.
SOLUTION_SUFFIXES = (".sol", ".opt.tour", ".tour")

#: Names of the columns with names and best-known values of instances.
NAME_COLUMNS = ("instance", "name", "file")
VALUE_COLUMNS = ("best_known", "bks", "optimum", "sol_cost", "cost", "best_score", "ea4op_score")


def read_instance(
    path: str | os.PathLike[str],
    *,
    solution: str | os.PathLike[str] | None = None,
    best_known: float | str | os.PathLike[str] | None = None,
    column: str | None = None,
    rounding: str | None = None,
) -> BenchmarkInstance:
    """Reads an instance: TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, Li and Lim, JSON or CSV.

    A solution with the same name beside the file (`.sol`, `.opt.tour`, `.tour`) is taken as the
    best-known one; it is read when `best_known` or `best_solution` is asked for.

    Args:
        path: The file.
        solution: File with the best-known solution, in place of one beside it.
        best_known: Best-known value, or a CSV table with a column of names (`instance`, `name` or
            `file`) and one of values.
        column: Name of the column of values (default: the first that is called `best_known`, `bks`,
            `optimum`, `sol_cost`, `cost` or `best_score`).
        rounding: How to round distances instead of the format's own rule: exact, nearest, up, down
            or one_decimal. No solution beside the file is looked for then, as its value belongs to
            the other rule.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The file is damaged, or of no known format; the message says what was
            expected, where, and what to do.

    Example:
        >>> instance = read_instance("X-n101-k25.vrp")
        >>> td = instance.to_tensordict(normalize=True)
        >>> instance.gap(instance.cost(routes))
    """
    source = Source.read(path)
    try:
        instance = _reader(source)(source)
    except InvalidInstanceError as error:
        raise source.fault("a complete instance", f"this fault: {error}", CORRECT) from error
    if rounding is not None:
        instance = instance.with_rounding(rounding)
    changes: dict[str, object] = {}
    if solution is not None:
        changes["solution_file"] = Source.read(solution).path
    elif rounding is None and instance.solution is None:
        changes["solution_file"] = _solution_beside(source.path)
    if isinstance(best_known, int | float):
        changes["published"] = float(best_known)
    elif best_known is not None:
        changes["published"] = read_best_known(best_known, instance, column)
    return dataclasses.replace(instance, **changes) if changes else instance  # type: ignore[arg-type]


def _reader(source: Source) -> Callable[[Source], BenchmarkInstance]:
    suffix = source.path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    for recognises, read in (
        (looks_like_solomon, read_solomon),
        (looks_like_orienteering, read_orienteering),
        (looks_like_lilim, read_lilim),
        (looks_like_sections, _read_sections),
    ):
        if recognises(source):
            return read
    raise source.fault(
        "TSPLIB (.tsp, .atsp), CVRPLIB (.vrp), Solomon, OPLib, TSPPDLIB, Li and Lim, JSON or CSV",
        f"a file that begins with {source.text.strip()[:40]!r}",
        "convert it, for instance to JSON (see rl4co.data.formats.own); a solution is read with "
        "read_solution",
    )


def _read_sections(source: Source) -> BenchmarkInstance:
    """Files of the TSPLIB family, by their TYPE."""
    sections = Sections.parse(source)
    kind = sections.require("TYPE").split()[0].upper()
    if kind in tsplib.TYPES and looks_like_tsppd(sections):
        return read_tsppd(sections)
    for types, read in (
        (tsplib.TYPES, tsplib.read_tsplib),
        (cvrplib.TYPES, cvrplib.read_cvrplib),
        (oplib.TYPES, oplib.read_oplib),
    ):
        if kind in types:
            return read(sections)
    remedy = "read solutions with read_solution" if kind == "TOUR" else "convert the file"
    raise source.fault(
        f"one of {', '.join((*tsplib.TYPES, *cvrplib.TYPES, *oplib.TYPES))}",
        repr(kind),
        remedy,
        line=sections.header_lines["TYPE"],
        section="TYPE",
    )


def _solution_beside(path: Path) -> Path | None:
    candidates = (path.with_name(f"{path.stem}{suffix}") for suffix in SOLUTION_SUFFIXES)
    return next((file for file in candidates if file.is_file() and file != path), None)


def read_best_known(
    table: str | os.PathLike[str], instance: BenchmarkInstance, column: str | None = None
) -> float | None:
    """The best-known value of an instance from a CSV table; None if its cell is empty.

    Args:
        table: CSV file with names of columns.
        instance: The instance, found by its name or the name of its file.
        column: Name of the column of values; None takes the first of :data:`VALUE_COLUMNS`.

    Raises:
        FileFormatError: The table has no such column, or does not list the instance.
    """
    source = Source.read(table)
    reader = csv.DictReader(source.text.splitlines())
    names = list(reader.fieldnames or ())
    name_column = _pick(source, names, NAME_COLUMNS)
    value_column = _pick(source, names, VALUE_COLUMNS if column is None else (column,))
    values = {
        Path(row[name_column] or "").name.lower(): (
            reader.line_num,
            (row[value_column] or "").strip(),
        )
        for row in reader
    }
    # File names first: several instances may have the same NAME.
    file = instance.source or Path(instance.name)
    name = next((n for n in (file.name, file.stem, instance.name) if n.lower() in values), None)
    if name is None:
        raise source.fault(
            f"a line for {instance.name}", "none", "give the table of this set", section=name_column
        )
    line, cell = values[name.lower()]
    return source.numbers([cell], line, value_column)[0] if cell else None


def _pick(source: Source, names: list[str], known: tuple[str, ...]) -> str:
    found = next((name for name in known if name in names), None)
    if found is None:
        raise source.fault(
            f"a column {' or '.join(known)}", f"{names}", "name the column with column=", line=1
        )
    return found
