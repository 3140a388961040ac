"""Custom instances in JSON: one object with lists of one entry per node, the depot included.

```json
{
  "coordinates": [[0, 0], [0, 3], [4, 3], [4, 0], [2, 2]],
  "demand": [0, 2, 3, 2, 1],
  "capacity": 5,
  "time_windows": [[0, 100], [0, 10], [5, 20], [0, 50], [0, 50]]
}
```

Node 0 is the depot, except in problems without one (TSP, ATSP). The keys decide the problem, unless
`problem` names it. `docs/files.md` has a table of all keys; upper and lower case are the same.
Places given as `lat` and `lon` have great-circle distances in kilometres.
"""

from __future__ import annotations

import difflib
import re
import warnings

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from rl4co.core.errors import InvalidInstanceError, UnknownNameError
from rl4co.data.formats.distances import (
    ROUNDINGS,
    EdgeCosts,
    FloatArray,
    IntArray,
    haversine,
    project,
)
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.solutions import load_json
from rl4co.data.formats.source import CORRECT, Source
from rl4co.data.layouts import name_problem, routing_layouts

#: Key → shape, where N is the number of nodes.
ARRAYS: Mapping[str, tuple[str, ...]] = {
    "coordinates": ("N", "2"),
    "lat": ("N",),
    "lon": ("N",),
    "cost_matrix": ("N", "N"),
    "duration_matrix": ("N", "N"),
    "demand": ("N",),
    "backhaul_demand": ("N",),
    "time_windows": ("N", "2"),
    "service_times": ("N",),
    "prizes": ("N",),
    "pairs": ("P", "2"),
}

#: Key → type of a single value.
SETTINGS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "problem": (str,),
    "comment": (str,),
    "rounding": (str,),
    "capacity": (int, float),
    "max_length": (int, float),
    "best_known": (int, float),
    "vehicles": (int,),
    "open_routes": (bool,),
    "best_solution": (list,),
    "nodes": (list,),
}

#: Key → the one without which it would have no effect.
NEEDS: Mapping[str, str] = {
    "capacity": "demand",
    "service_times": "time_windows",
    "duration_matrix": "time_windows",
}

#: Other names of keys and columns.
ALIASES: Mapping[str, str] = {
    "latitude": "lat",
    "longitude": "lon",
    "lng": "lon",
    "long": "lon",
}

_ONE_CAPACITY = "one capacity for all vehicles (heterogeneous fleets are not supported)"
_ONE_DEPOT = "one depot, which is node 0 (several depots are not supported)"
#: Key → the limit of the library that it would exceed.
LIMITS: Mapping[str, str] = {
    **dict.fromkeys(("capacity", "capacities", "fleet", "vehicle_types"), _ONE_CAPACITY),
    "vehicles": "one number of vehicles, all alike (heterogeneous fleets are not supported)",
    **dict.fromkeys(("depot", "depots", "num_depots", "is_depot"), _ONE_DEPOT),
}

#: A time of day, and the form of times that is expected instead.
CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2})?")
NO_CLOCK = (
    "times as numbers in the unit of the costs or of duration_matrix (in minutes, 08:30 is 510)"
)


def read_fields(source: Source) -> dict[str, Any]:
    """The keys of a JSON file, in lower case and by their usual names, and their values."""
    fields: dict[str, Any] = {}
    for name, value in load_json(source).items():
        key = ALIASES.get(name.lower(), name.lower())
        if key in fields:
            raise source.fault("every key once", f"the key {key!r} twice", CORRECT)
        fields[key] = value
    return fields


def build_instance(
    source: Source, fields: Mapping[str, Any], labels: tuple[str, ...] | None = None
) -> BenchmarkInstance:
    """The instance with these keys.

    Args:
        source: The file.
        fields: Values of keys of :data:`ARRAYS` and :data:`SETTINGS`.
        labels: Names of the nodes; None takes those of the key `nodes`.
    """
    for key in fields:
        if key not in ARRAYS and key not in SETTINGS:
            raise unknown_key(source, key, (*ARRAYS, *SETTINGS))
    settings = {
        key: _checked(source, key, value) for key, value in fields.items() if key in SETTINGS
    }
    size = _size(source, fields)
    arrays = {
        key: read_array(source, key, fields[key], size)
        for key in ARRAYS
        if fields.get(key) is not None
    }
    rounding = _checked_name(source, "rounding", settings.pop("rounding", "exact"), ROUNDINGS)
    costs = _pop_costs(source, arrays, rounding)
    pairs = arrays.pop("pairs", None)
    order, orders = _pickups_first(source, pairs, size)
    problem = settings.pop("problem", None) or name_problem(
        {**arrays, **settings, "pairs": pairs}, costs
    )
    problem = _checked_name(source, "problem", problem, routing_layouts())
    _reject_ignored(source, {**arrays, **settings, "pairs": pairs}, problem)
    names = labels or _names(source, settings.pop("nodes", None), size)
    duration = arrays.pop("duration_matrix", None)
    stated, solution = settings.pop("best_known", None), settings.pop("best_solution", None)
    position = {int(node): k for k, node in enumerate(order)}
    try:
        return BenchmarkInstance(
            name=settings.pop("name", source.name),
            problem=problem,
            edge_costs=costs.take(order),
            pairs=orders,
            duration_matrix=None if duration is None else duration[np.ix_(order, order)],
            labels=tuple(names[node] for node in order),
            source=source.path,
            stated_best_known=None if stated is None else float(stated),
            solution=_solution(source, solution, position),
            **settings,
            **{key: value[order] for key, value in arrays.items()},
        )
    except InvalidInstanceError as error:
        raise source.fault("a complete instance", f"this fault: {error}", CORRECT) from error


def _pop_costs(source: Source, arrays: dict[str, FloatArray], rounding: str) -> EdgeCosts:
    """Costs by a matrix or places; `lat` and `lon` become `coordinates` in kilometres, in place."""
    lat, lon = arrays.pop("lat", None), arrays.pop("lon", None)
    matrix = arrays.pop("cost_matrix", None)
    if lat is None and lon is None:
        if matrix is not None:
            return EdgeCosts.of_matrix(matrix)
        _note_degrees(source, arrays["coordinates"])
        return EdgeCosts.of_points(arrays["coordinates"], rounding=rounding)
    if lat is None or lon is None or "coordinates" in arrays:
        raise source.fault(
            "both lat and lon, and no coordinates (x, y) besides",
            "one of them" if lat is None or lon is None else "coordinates besides",
            CORRECT, section="lat, lon",
        )  # fmt: skip
    if (np.abs(lat) > 90).any() or (np.abs(lon) > 180).any():
        worst = [float(values[np.abs(values).argmax()]) for values in (lat, lon)]
        raise source.fault(
            "degrees, lat from -90 to 90 and lon from -180 to 180",
            f"lat {worst[0]:g} and lon {worst[1]:g}", "swap them, or name them x and y",
            section="lat, lon",
        )  # fmt: skip
    degrees = np.stack([lat, lon], axis=1)  # [N, 2]
    arrays["coordinates"] = project(degrees)
    if matrix is not None:
        return EdgeCosts.of_matrix(matrix)
    return EdgeCosts.of_points(degrees, haversine, rounding)


def _note_degrees(source: Source, points: FloatArray) -> None:
    """Warn where places in a plane look like latitudes and longitudes of one region."""
    if points.shape[1:] != (2,) or len(points) < 2:
        return  # `BenchmarkInstance` raises for other shapes
    size, offset = np.abs(points).max(axis=0), np.abs(points).min(axis=0)
    extent = np.ptp(points, axis=0)
    in_range = sorted(size)[0] <= 90 and sorted(size)[1] <= 180
    is_region = (offset >= extent).any() and extent.max() <= 60
    has_fractions = (points != np.round(points, 1)).mean() > 0.5
    if in_range and is_region and has_fractions:
        warnings.warn(
            f"{source.path}: expected places in a plane under x and y, got numbers that look like "
            "degrees; their distances are Euclidean: name them lat and lon for kilometres",
            stacklevel=2,
        )


def _reject_ignored(source: Source, fields: Mapping[str, Any], problem: str) -> None:
    """Raise for keys that would be read and then have no effect."""
    layouts = routing_layouts()
    supported = layouts[problem].marks | layouts[problem].knows | set(layouts[problem].requires)
    present = {key for key, value in fields.items() if value is not None and value is not False}
    features = {key for layout in layouts.values() for key in layout.marks | layout.knows}
    for key in sorted(present & features - supported):
        raise source.fault(
            f"no {key} in an instance of {problem}, which does not know it",
            key, "leave it out, or name another problem (or none)", section="problem",
        )  # fmt: skip
    for key, partner in NEEDS.items():
        if key in present and partner not in present:
            raise source.fault(
                f"{partner} with {key}, which does nothing without", f"no {partner}",
                f"give {partner}, or leave {key} out", section=key,
            )  # fmt: skip


def _names(source: Source, names: list[Any] | None, size: int) -> tuple[str, ...]:
    """Names of the nodes, by default their numbers."""
    if names is None:
        return tuple(map(str, range(size)))
    if len(set(map(str, names))) != size or not all(isinstance(name, str) for name in names):
        raise source.fault(
            f"{size} different texts, one for each node", repr(names)[:60], CORRECT, section="nodes"
        )
    return tuple(names)


def _size(source: Source, fields: Mapping[str, Any]) -> int:
    """Number of nodes."""
    places = ("coordinates", "cost_matrix", "lat", "lon")
    for key in places:
        if isinstance(fields.get(key), list) and fields[key]:
            return len(fields[key])
    for key in places:
        if isinstance(fields.get(key), Mapping):
            raise source.fault(
                "a list with one entry per node", "an object with a key for each",
                "write a list, and the names of the nodes in the same order under nodes",
                section=key,
            )  # fmt: skip
    raise source.fault(
        "coordinates, lat and lon, or cost_matrix",
        f"the keys {sorted(fields)}",
        "say where the nodes are or what it costs to travel between them",
    )


def read_array(source: Source, key: str, value: Any, size: int) -> Any:
    """The numbers of a key of :data:`ARRAYS`, in the right shape.

    Args:
        source: The file.
        key: The key.
        value: Its value in the file.
        size: Number of nodes.
    """
    letters = ARRAYS[key]
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        odd = _first_non_number(value)
        expected = f"numbers of shape [{', '.join(letters)}]"
        if isinstance(odd, str) and CLOCK.fullmatch(odd.strip()):
            expected = NO_CLOCK
        got = "uneven lists" if odd is None else repr(odd)[:60]
        raise source.fault(expected, got, CORRECT, section=key) from error
    shape = tuple(size if letter == "N" else int(letter) if letter.isdigit() else len(array)
                  for letter in letters)  # fmt: skip
    if array.shape != shape:
        raise source.fault(
            f"shape [{', '.join(letters)}] = {list(shape)} for {size} nodes, the depot included",
            str(list(array.shape)), CORRECT, section=key,
        )  # fmt: skip
    if not np.isfinite(array).all():
        raise source.fault("finite numbers", "NaN or infinity", CORRECT, section=key)
    return array


def _first_non_number(value: Any) -> Any:
    """The first entry of nested lists that is no number; None if all are."""
    if isinstance(value, list):
        odd = (_first_non_number(entry) for entry in value)
        return next((entry for entry in odd if entry is not None), None)
    return None if isinstance(value, int | float) else str(value)


def _checked(source: Source, key: str, value: Any) -> Any:
    """A single value of the right type."""
    kinds = SETTINGS[key]
    is_bool = isinstance(value, bool)
    if key in LIMITS and isinstance(value, list | dict):
        raise unsupported(source, key, f"{len(value)} under {key}")
    if not isinstance(value, kinds) or (is_bool and bool not in kinds) or value != value:
        names = " or ".join(kind.__name__ for kind in kinds)
        raise source.fault(f"a value of type {names}", repr(value)[:60], CORRECT, section=key)
    return value


def _pickups_first(
    source: Source, pairs: FloatArray | None, size: int
) -> tuple[IntArray, IntArray | None]:
    """Nodes in the order of the environments (depot, pickups, deliveries), and the pairs in it."""
    if pairs is None:
        return np.arange(size), None
    nodes = pairs.astype(np.int64)
    if sorted(nodes.flatten().tolist()) != list(range(1, size)) or (nodes != pairs).any():
        raise source.fault(
            f"every customer 1 to {size - 1} in one pair", f"{len(pairs)} pairs", CORRECT,
            section="pairs",
        )  # fmt: skip
    numbers = np.arange(1, len(nodes) + 1)
    order = np.concatenate([[0], nodes[:, 0], nodes[:, 1]])
    return order, np.stack([numbers, numbers + len(nodes)], axis=1)


def _solution(
    source: Source, routes: Any, position: Mapping[int, int]
) -> tuple[tuple[int, ...], ...] | None:
    if routes is None:
        return None
    nested = routes if routes and isinstance(routes[0], list) else [routes]
    try:
        return tuple(tuple(position[node] for node in route) for route in nested)
    except (KeyError, TypeError) as error:
        raise source.fault(
            "routes as lists of nodes", f"{error}", CORRECT, section="best_solution"
        ) from error


def _checked_name(source: Source, key: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise source.fault(
            f"one of {', '.join(sorted(names))}", repr(name), CORRECT, section=key
        ) from UnknownNameError(key, name, names)
    return name


def unknown_key(
    source: Source, key: str, valid: Collection[str], line: int | None = None, what: str = "keys"
) -> Exception:
    """The error for a key or column that has no meaning; it names the likely one or the limit."""
    if key in LIMITS:
        return unsupported(source, key, repr(key), line)
    close = difflib.get_close_matches(key, valid, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "correct or remove it"
    return source.fault(f"the {what} {', '.join(sorted(valid))}", repr(key), hint, line=line)


def unsupported(source: Source, key: str, got: str, line: int | None = None) -> Exception:
    """The error for an instance that exceeds a limit of the library."""
    expected, remedy = LIMITS.get(key, "one number"), "split the instance, or simplify it"
    return source.fault(expected, got, remedy, line=line, section=key)
