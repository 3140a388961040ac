"""Reading solutions: CVRPLIB `.sol`, SINTEF text, TSPLIB tours, OPLib `.sol` and JSON.

Nodes of route lists (`Route #1: 5 3 7`) are numbered as in the environment: the depot is 0, and
the customers follow in the order of the file, from 1. Tours and OPLib's sequences use the names
that the instance's file gives to its nodes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import warnings

from typing import TYPE_CHECKING

from rl4co.data.formats.benchmark import differs
from rl4co.data.formats.feasibility import find_violation
from rl4co.data.formats.sections import Sections, looks_like_sections
from rl4co.data.formats.source import CORRECT, TRUNCATED, Source

if TYPE_CHECKING:
    from rl4co.data.formats.instance import BenchmarkInstance, Routes

_ROUTE = re.compile(r"^\s*Route\s*#?\s*\d+\s*:(.*)$", re.IGNORECASE)
_COST = re.compile(r"^\s*Cost\s*:?\s*(\S+)\s*$", re.IGNORECASE)

#: Keys of a solution in JSON.
JSON_KEYS = ("name", "problem", "routes", "cost", "objective")


@dataclasses.dataclass(frozen=True)
class Solution:
    """A solution from a file.

    Attributes:
        source: The file.
        routes: Nodes of each route, without the depot; the only route of a TSP is its tour.
        value: The value in the file: cost, or collected prize in orienteering; None if it has none.
    """

    source: Source
    routes: Routes
    value: float | None

    def require_valid(self, instance: BenchmarkInstance) -> None:
        """Raise FileFormatError if the solution breaks a constraint of the instance."""
        violation = find_violation(instance, self.routes)
        if violation is not None:
            raise self.source.fault(
                f"a solution of {instance.name} in which {violation.rule}",
                violation.place,
                "use another solution (the file's may be that of another instance), or give the "
                "best-known value alone",
            )

    def note_contradiction(self, instance: BenchmarkInstance) -> None:
        """Warn if the routes are valid, but their value differs from the one in the file."""
        if self.value is None or find_violation(instance, self.routes) is not None:
            return
        actual = instance.objective(self.routes)
        if differs(actual, self.value):
            warnings.warn(
                f"{self.source.path}: expected the {instance.value_name} of its routes, "
                f"{actual:.10g}, got {self.value:.10g}; either is wrong, or the file counts by "
                "other rules (--rounding)",
                stacklevel=2,
            )


def read_solution(
    path: str | os.PathLike[str], instance: BenchmarkInstance, check: bool = True
) -> Solution:
    """Reads a solution of an instance.

    Args:
        path: File in any of the formats above.
        instance: The instance that it solves.
        check: Whether to raise for solutions that break a constraint, and to warn of a value that
            differs from that of the routes.

    Raises:
        FileNotFoundError: There is no such file.
        FileFormatError: The file is damaged, or the solution breaks a constraint.
    """
    solution = parse_solution(Source.read(path), instance)
    if check:
        solution.require_valid(instance)
        solution.note_contradiction(instance)
    return solution


def parse_solution(source: Source, instance: BenchmarkInstance) -> Solution:
    """A solution from a file of any format, without a check of its feasibility."""
    if source.text.lstrip().startswith("{"):
        return _parse_json(source)
    if any(_ROUTE.match(line) for line in source.lines):
        return _parse_routes(source, instance)
    if looks_like_sections(source):
        return _parse_sequence(source, instance)
    raise source.fault(
        "lines 'Route #1: ...', a TOUR_SECTION, a NODE_SEQUENCE_SECTION or JSON",
        "none of them",
        "give the file of a solution",
    )


def _parse_routes(source: Source, instance: BenchmarkInstance) -> Solution:
    solution = parse_routes(source)
    if instance.layout.has_depot:
        return solution
    # A tour written as a route leaves out node 0, at which it begins.
    return dataclasses.replace(solution, routes=tuple((0, *route) for route in solution.routes))


def parse_routes(source: Source) -> Solution:
    """A solution from lines `Route #1: ...`, node numbers as they are written."""
    routes: list[tuple[int, ...]] = []
    value = None
    for number, line in enumerate(source.lines, start=1):
        route, cost = _ROUTE.match(line), _COST.match(line)
        if route:
            routes.append(
                tuple(source.integers(route[1].split(), number, f"Route {len(routes) + 1}"))
            )
        elif cost:
            value = source.numbers([cost[1]], number, "Cost")[0]
    return Solution(source, tuple(route for route in routes if route), value)


def _parse_sequence(source: Source, instance: BenchmarkInstance) -> Solution:
    sections = Sections.parse(source)
    kind = next(
        (name for name in ("TOUR_SECTION", "NODE_SEQUENCE_SECTION") if name in sections.rows), None
    )
    if kind is None:
        raise source.fault("a TOUR_SECTION or NODE_SEQUENCE_SECTION", "none", TRUNCATED)
    position = {label: node for node, label in enumerate(instance.labels)}
    nodes = []
    for line, (word,) in sections.node_list(kind):
        if word not in position:
            raise source.fault(
                f"nodes of {instance.name}", f"node {word!r}", CORRECT, line=line, section=kind
            )
        nodes.append(position[word])
    if instance.layout.has_depot:
        if nodes[:1] != [0]:
            raise source.fault(
                "a sequence that begins at the depot",
                f"node {instance.labels[nodes[0]]}" if nodes else "nothing",
                CORRECT,
                section=kind,
            )
        nodes = nodes[1:]
    elif "DIMENSION" in sections.header and sections.dimension() != len(nodes):
        raise source.fault(
            f"{sections.dimension()} nodes, as DIMENSION says", len(nodes), TRUNCATED, section=kind
        )
    value = sections.optional_number("ROUTE_SCORE")
    return Solution(source, (tuple(nodes),) if nodes else (), value)


def _parse_json(source: Source) -> Solution:
    data = load_json(source)
    unknown = sorted(set(data) - set(JSON_KEYS))
    routes = data.get("routes")
    if unknown or not isinstance(routes, list) or not all(_is_nodes(route) for route in routes):
        raise source.fault(
            "routes as lists of whole numbers (keys: " + ", ".join(JSON_KEYS) + ")",
            f"the keys {sorted(data)}" if unknown or routes is None else repr(routes)[:60],
            CORRECT,
            section="routes",
        )
    value = data.get("objective", data.get("cost"))
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise source.fault("a number", repr(value)[:60], CORRECT, section="objective")
    return Solution(
        source, tuple(tuple(route) for route in routes), None if value is None else float(value)
    )


def _is_nodes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(node, int) and not isinstance(node, bool) for node in value
    )


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object with these keys and values, which must be unique."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} twice")
    return fields


def load_json(source: Source) -> dict[str, object]:
    """The object in a JSON file."""
    try:
        data = json.loads(source.text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise source.fault("JSON", str(error)[:80], CORRECT, line=line) from error
    if not isinstance(data, dict):
        raise source.fault("an object {...}", type(data).__name__, CORRECT)
    return data
