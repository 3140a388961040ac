"""Texts of routes as files have them: CVRPLIB `.sol`, OPLib `.sol`, TSPLIB tours and JSON."""

from __future__ import annotations

import json
import os

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance, Routes

#: Comment in every file that lies where best-known solutions do: readers tell them apart by it.
WRITTEN_HERE = "written by rl4co"
#: Bytes at both ends of a file among which the comment is.
_ENDS = 4096


def is_written_here(path: Path) -> bool:
    """Whether a solution file was written by this library, and is thus no best-known solution."""
    with path.open("rb") as file:
        head = file.read(_ENDS)
        file.seek(max(file.seek(0, os.SEEK_END) - _ENDS, 0))
        return WRITTEN_HERE.encode() in head + file.read()


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _sol(instance: BenchmarkInstance, routes: Routes) -> str:
    if instance.prizes is not None:
        return _oplib(instance, routes)
    cost = instance.cost(routes)
    if not instance.layout.has_depot:
        (tour,) = routes
        start = tour.index(0)  # tours are written from node 0 on, which is left out
        routes = ((*tour[start + 1 :], *tour[:start]),)
    lines = [f"Route #{k}: {' '.join(map(str, route))}" for k, route in enumerate(routes, start=1)]
    return "\n".join([*lines, f"Cost {_number(cost)}", f"# {WRITTEN_HERE}", ""])


def _oplib(instance: BenchmarkInstance, routes: Routes) -> str:
    nodes = [0, *(node for route in routes for node in route)]
    assert instance.max_length is not None
    return "\n".join(
        [
            f"NAME : {instance.name}",
            f"COMMENT : {WRITTEN_HERE}",
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
            f"COMMENT : Length {_number(instance.cost(routes))}, {WRITTEN_HERE}",
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
