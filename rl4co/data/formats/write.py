"""Writing solutions: CVRPLIB `.sol`, OPLib `.sol`, TSPLIB tours and JSON.

A file is written under a temporary name and renamed, so it is either complete or not there. What
:func:`~rl4co.data.formats.solutions.read_solution` reads back is the same solution.
"""

from __future__ import annotations

import json
import os

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.data.formats.instance import BenchmarkInstance, Routes
from rl4co.data.io import atomic_write


def write_solution(
    path: str | os.PathLike[str],
    instance: BenchmarkInstance,
    routes: Sequence[int] | Sequence[Sequence[int]],
) -> Path:
    """Writes a valid solution, in the format that the suffix names.

    Args:
        path: File to write; `.sol` (routes and cost; OPLib's form if there are prizes), `.tour`
            (TSP and ATSP) or `.json`. Folders are created.
        instance: What is solved.
        routes: Solution, as for :meth:`BenchmarkInstance.cost`.

    Returns:
        The path that was written.

    Raises:
        InvalidSolutionError: The solution breaks a constraint; then nothing is written.
    """
    target = check_target(path, instance)
    instance.check(routes)
    text = WRITERS[target.suffix.lower()](instance, instance.as_routes(routes))
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as file:
        file.write(text.encode())
    return target


def check_target(path: str | os.PathLike[str], instance: BenchmarkInstance) -> Path:
    """Raises unless solutions of an instance can be written to a file, before one is looked for.

    Args:
        path: As for :func:`write_solution`.
        instance: What will be solved.

    Returns:
        The path.
    """
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in WRITERS:
        raise UnknownNameError("suffix of a solution", suffix, WRITERS)
    if suffix == ".tour" and instance.layout.has_depot:
        raise UnsupportedError(
            f"expected a tour of TSP or ATSP for the suffix .tour, got a solution of "
            f"{instance.problem}; write a .sol or .json file"
        )
    require_writable(target)
    return target


def require_writable(target: Path) -> None:
    """Raises OSError if a file cannot be written; folders above it need not exist yet."""
    if target.is_dir():
        raise IsADirectoryError(f"expected a file to write, got the folder {target}; name a file")
    place = next(folder for folder in (target, *target.absolute().parents) if folder.exists())
    if place != target and not place.is_dir():
        raise NotADirectoryError(
            f"expected a folder to write {target} into, got the file {place}; give another path"
        )
    if not os.access(place, os.W_OK):
        raise PermissionError(
            f"expected a place to write {target} to, got {place}, which is read-only; "
            "give another path"
        )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _sol(instance: BenchmarkInstance, routes: Routes) -> str:
    if instance.prizes is not None:
        return _oplib(instance, routes)
    if not instance.layout.has_depot:
        (tour,) = routes
        start = tour.index(0)  # tours are written from node 0 on, which is left out
        routes = ((*tour[start + 1 :], *tour[:start]),)
    lines = [f"Route #{k}: {' '.join(map(str, route))}" for k, route in enumerate(routes, start=1)]
    return "\n".join([*lines, f"Cost {_number(instance.cost(_whole(instance, routes)))}", ""])


def _whole(instance: BenchmarkInstance, routes: Routes) -> Routes:
    return routes if instance.layout.has_depot else tuple((0, *route) for route in routes)


def _oplib(instance: BenchmarkInstance, routes: Routes) -> str:
    nodes = [0, *(node for route in routes for node in route)]
    assert instance.max_length is not None
    return "\n".join(
        [
            f"NAME : {instance.name}",
            "TYPE : OP",
            f"DIMENSION : {instance.num_nodes}",
            f"COST_LIMIT : {_number(instance.max_length)}",
            f"ROUTE_NODES : {len(nodes)}",
            f"ROUTE_SCORE : {_number(instance.objective(routes))}",
            f"ROUTE_COST : {_number(instance.cost(routes))}",
            "NODE_SEQUENCE_SECTION",
            *(instance.labels[node] for node in nodes),
            "-1",
            "DEPOT_SECTION",
            instance.labels[0],
            "-1",
            "EOF",
            "",
        ]
    )


def _tour(instance: BenchmarkInstance, routes: Routes) -> str:
    (tour,) = routes
    return "\n".join(
        [
            f"NAME : {instance.name}",
            f"COMMENT : Length {_number(instance.cost(routes))}",
            "TYPE : TOUR",
            f"DIMENSION : {instance.num_nodes}",
            "TOUR_SECTION",
            *(instance.labels[node] for node in tour),
            "-1",
            "EOF",
            "",
        ]
    )


def _json(instance: BenchmarkInstance, routes: Routes) -> str:
    record = {
        "name": instance.name,
        "problem": instance.problem,
        "routes": routes,
        "cost": instance.cost(routes),
        "objective": instance.objective(routes),
    }
    return json.dumps(record, indent=1) + "\n"


#: Suffix → text of a file.
WRITERS: Mapping[str, Callable[[BenchmarkInstance, Routes], str]] = {
    ".sol": _sol,
    ".tour": _tour,
    ".json": _json,
}
