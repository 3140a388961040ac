"""`read_instance`: an instance from a file of any known format.

The format is recognised by the content; suffixes matter for JSON, CSV and arrays only. Reading
needs no other library and never runs code from a file.
"""

from __future__ import annotations

import dataclasses
import math
import os
import warnings

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rl4co.core.errors import ConfigError, InvalidInstanceError
from rl4co.data.formats import cvrplib, oplib, tsplib
from rl4co.data.formats.best_known import read_bounds
from rl4co.data.formats.content import STDIN, name_of, require_file
from rl4co.data.formats.custom_csv import looks_like_csv, read_csv
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.lilim import looks_like_lilim, read_lilim
from rl4co.data.formats.orienteering import looks_like_orienteering, read_orienteering
from rl4co.data.formats.plain import read_json
from rl4co.data.formats.pmed import BenchmarkMedian, looks_like_pmed, read_pmed
from rl4co.data.formats.route_texts import is_written_here
from rl4co.data.formats.schedules import BenchmarkShop
from rl4co.data.formats.sections import Sections, looks_like_sections
from rl4co.data.formats.shop_files import looks_like_shop, parse_shops, read_l2d
from rl4co.data.formats.solomon import looks_like_solomon, read_solomon
from rl4co.data.formats.source import CORRECT, Source
from rl4co.data.formats.tsppd import looks_like_tsppd, read_tsppd

AnyInstance: TypeAlias = BenchmarkInstance | BenchmarkShop | BenchmarkMedian

SUFFIXES: Mapping[str, Callable[[Source], AnyInstance]] = {".json": read_json, ".csv": read_csv}

#: TYPE of files of the TSPLIB family that are no supported instances → what to do.
REMEDIES = {
    "TOUR": "read solutions with read_solution",
    **dict.fromkeys(("MDVRP", "MDVRPTW", "MDCVRP"), "several depots are not supported"),
    **dict.fromkeys(("HFVRP", "HVRP", "HCVRP", "FSMVRP"), "heterogeneous fleets are not supported"),
}
#: Suffixes of solution files beside their instances.
SOLUTION_SUFFIXES = (".sol", ".opt.tour", ".tour")


def read_instance(
    path: str | os.PathLike[str],
    *,
    solution: str | os.PathLike[str] | None = None,
    best_known: float | str | os.PathLike[str] | None = None,
    column: str | None = None,
    rounding: str | None = None,
    vehicles: int | None = None,
) -> AnyInstance:
    """Read the only instance of a file.

    TSPLIB, CVRPLIB, Solomon, OPLib, TSPPDLIB, Li and Lim, JSON and CSV files have routing problems;
    JSPLIB's, Taillard's and FJS files have job shops, `pmed` files of the OR-Library p-median
    problems; JSON files may have these, too. A solution with the same name beside a
    routing problem (`.sol`, `.opt.tour`, `.tour`) is taken as the best-known one, unless this
    library wrote it; it is read when `best_known` or `best_solution` is asked for, and ignored with
    a warning if it breaks a constraint.

    Args:
        path: The file, perhaps compressed (`.gz`). `-` is the standard input.
        solution: File with the best-known solution, in place of one beside it.
        best_known: Best-known value, or a CSV table with a column of names (`instance`, `path`,
            `name` or `file`) and one of values, see
            :func:`~rl4co.data.formats.best_known.read_best_known`. A table that does not list the
            instance triggers a warning.
        column: Name of the column of values (default: the first that is called `best_known`, `bks`,
            `optimum`, `sol_cost`, `cost` or `best_score`, else the latest upper bound, `ub_...`).
        rounding: How to round distances instead of the format's own rule: exact, nearest, up, down
            or one_decimal. Then no solution beside the file is read, because its value belongs to
            the other rule.
        vehicles: Most routes of a solution, in place of what the file says.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The file is damaged, or of no known format; the message says what was
            expected, where, and what to do. Also if it has several instances.

    Example:
        >>> instance = read_instance("X-n101-k25.vrp")
        >>> td = instance.to_tensordict(normalize=True)
        >>> instance.gap(instance.cost(routes))
    """
    instances = read_instances(
        path,
        solution=solution,
        best_known=best_known,
        column=column,
        rounding=rounding,
        vehicles=vehicles,
    )
    if len(instances) > 1:
        names = f"{instances[0].name} to {instances[-1].name}"
        raise Source(Path(path), "", ()).fault(
            "one instance",
            f"{len(instances)} ({names})",
            "`rl4co benchmark` and read_instances take them all; else give each a file of its own",
        )
    return instances[0]


def read_instances(
    path: str | os.PathLike[str],
    *,
    solution: str | os.PathLike[str] | None = None,
    best_known: float | str | os.PathLike[str] | None = None,
    column: str | None = None,
    rounding: str | None = None,
    vehicles: int | None = None,
) -> Sequence[AnyInstance]:
    """Read all instances of a file; only Taillard's files and `.npy` arrays may have several.

    Args:
        path: The file.
        solution: See :func:`read_instance`; for one instance only.
        best_known: See :func:`read_instance`; a value is for one instance only.
        column: See :func:`read_instance`.
        rounding: See :func:`read_instance`.
        vehicles: See :func:`read_instance`.
    """
    instances = _parse(Path(path))
    if len(instances) > 1 and (solution is not None or isinstance(best_known, int | float)):
        raise ConfigError(
            f"expected a table of best-known values of the {len(instances)} instances in {path}, "
            f"got {best_known if solution is None else solution}; give a CSV file"
        )
    if rounding is not None:
        instances = [instance.with_rounding(rounding) for instance in instances]
    if vehicles is not None:
        instances = [_with_vehicles(instance, vehicles) for instance in instances]
    return [_with_reference(each, solution, best_known, column) for each in instances]


def _with_vehicles(instance: AnyInstance, vehicles: int) -> AnyInstance:
    if not isinstance(instance, BenchmarkInstance):
        raise ConfigError(
            f"expected routes to limit the vehicles of, got {instance.name}, a {instance.problem}; "
            "leave out the number of vehicles"
        )
    return instance.with_vehicles(vehicles)


def _with_reference(
    instance: AnyInstance,
    solution: str | os.PathLike[str] | None,
    best_known: float | str | os.PathLike[str] | None,
    column: str | None,
) -> AnyInstance:
    """An instance with its best-known solution, value and bound."""
    changes: dict[str, Any] = {}
    if solution is not None:
        changes["solution_file"] = Source.read(solution).path
        if isinstance(instance, BenchmarkInstance):
            changes["needs_solution"] = True
    if isinstance(best_known, int | float):
        changes["stated_best_known"] = _checked_value(best_known)
    elif best_known is not None:
        bounds = read_bounds(best_known, instance, column)
        if bounds is None:
            warnings.warn(
                f"{best_known}: expected a line for {instance.name}, got none; the gap is unknown",
                stacklevel=4,
            )
        else:
            changes["stated_best_known"] = bounds.upper
            changes |= {} if bounds.lower is None else {"lower_bound": bounds.lower}
    return dataclasses.replace(instance, **changes)


def _checked_value(value: float) -> float:
    """A best-known value that gaps can refer to."""
    if not math.isfinite(value) or not value:
        raise ConfigError(
            f"expected a finite best-known value other than 0, got {value:g}; a gap to it has no "
            "meaning, leave it out"
        )
    return float(value)


# ---------------------------------------------------------------- formats


def _parse(path: Path) -> Sequence[AnyInstance]:
    """The instances of a file, with the bounds or the solution that come with it."""
    if path.suffix.lower() == ".npy":
        require_file(path)
        return [BenchmarkShop.of(shop) for shop in read_l2d(path)]
    source = Source.read(path)
    try:
        if source.suffix not in SUFFIXES and looks_like_shop(source):
            return [BenchmarkShop.of(shop) for shop in parse_shops(source)]
        if looks_like_pmed(source):
            return [read_pmed(source)]
        instance = _reader(source)(source)
    except InvalidInstanceError as error:
        raise source.fault("a complete instance", f"this fault: {error}", CORRECT) from error
    if not isinstance(instance, BenchmarkInstance):
        return [instance]
    beside = None if instance.solution is not None else _solution_beside(source.path)
    return [dataclasses.replace(instance, solution_file=beside, needs_solution=beside is None)]


def _reader(source: Source) -> Callable[[Source], AnyInstance]:
    """The reader for the routing problem of a file, or for any problem in JSON."""
    if source.suffix in SUFFIXES:
        return SUFFIXES[source.suffix]
    for recognises, read in (
        (looks_like_solomon, read_solomon),
        (looks_like_orienteering, read_orienteering),
        (looks_like_lilim, read_lilim),
        (looks_like_sections, _read_sections),
    ):
        if recognises(source):
            return read
    if source.path == STDIN and looks_like_csv(source):
        return read_csv
    if source.path == STDIN and source.text.lstrip().startswith("{"):
        return read_json
    raise source.fault(
        "TSPLIB (.tsp, .atsp), CVRPLIB (.vrp), Solomon, OPLib, TSPPDLIB, Li and Lim, JSON or CSV "
        "of a routing problem, JSPLIB, Taillard or FJS (.fjs) of a job shop, or a p-median problem "
        "of the OR-Library",
        f"a file that begins with {source.text.strip()[:40]!r}",
        "convert it, for instance to JSON (see rl4co.data.formats.custom); a solution is read with "
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
    remedy = REMEDIES.get(kind, "convert the file")
    expected = f"one of {', '.join((*tsplib.TYPES, *cvrplib.TYPES, *oplib.TYPES))}"
    raise sections.fault("TYPE", expected, repr(kind), remedy)


def _solution_beside(path: Path) -> Path | None:
    if path == STDIN:
        return None
    candidates = (path.with_name(f"{name_of(path)}{suffix}") for suffix in SOLUTION_SUFFIXES)
    files = (file for file in candidates if file.is_file() and file != path)
    return next((file for file in files if not is_written_here(file)), None)
