"""People's own instances in JSON and CSV.

Node 0 is the depot, except in problems without one (TSP, ATSP). Every list has one entry per node,
the depot included. What is given decides the problem, unless it is named.

JSON, one object; all keys but `coordinates` or `cost_matrix` are optional:

```json
{
  "name": "four customers",
  "coordinates": [[0, 0], [0, 3], [4, 3], [4, 0], [2, 2]],
  "demand": [0, 2, 3, 2, 1],
  "capacity": 5,
  "time_windows": [[0, 100], [0, 10], [5, 20], [0, 50], [0, 50]],
  "service_times": [0, 1, 1, 1, 1]
}
```

| key | meaning | problem |
|---|---|---|
| `coordinates` | `[N, 2]` | any |
| `cost_matrix` | costs `[N, N]`, row to column, in place of distances | any |
| `rounding` | of distances: exact (default), nearest, up, down, one_decimal | any |
| `demand`, `capacity` | what customers get, what a vehicle carries | cvrp |
| `time_windows`, `service_times` | when service may begin, how long it takes | cvrptw |
| `duration_matrix` | travel times `[N, N]`, if they are not the costs | cvrptw, mtvrp |
| `backhaul_demand` | what is fetched from customers, after all deliveries of a route | mtvrp |
| `open_routes` | whether routes end at their last customer | mtvrp |
| `max_length` | longest route; with `prizes`, longest tour | mtvrp, op |
| `prizes` | what a visit is worth | op |
| `pairs` | `[[pickup, delivery], ...]`, all customers in pairs | pdp |
| `vehicles` | most routes of a solution (default: any number) | cvrp, cvrptw, mtvrp |
| `nodes` | names of all nodes | any |
| `name`, `problem`, `comment` | about the instance | any |
| `best_known`, `best_solution` | value, and routes without the depot | any |

CSV, one line per node; other settings are in lines that begin with `#`:

```text
# capacity: 5
node,x,y,demand,ready_time,due_time,service_time
depot,0,0,0,0,100,0
a,0,3,2,0,10,1
b,4,3,3,5,20,1
```

Columns: `node` (a name), `x`, `y`, `demand`, `backhaul_demand`, `ready_time`, `due_time`,
`service_time`, `prize`, `delivery` (the node that takes delivery of what is picked up here). They
are separated by commas, semicolons or tabs. A file of numbers without names of columns is a matrix
of costs.
"""

from __future__ import annotations

import csv
import difflib
import re

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rl4co.core.errors import InvalidInstanceError, UnknownNameError
from rl4co.data.formats.distances import ROUNDINGS, EdgeCosts, FloatArray, IntArray
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.solutions import load_json
from rl4co.data.formats.source import CORRECT, Source, is_number
from rl4co.data.layouts import name_problem, routing_layouts

#: Key → shape, where N is the number of nodes.
ARRAYS: Mapping[str, tuple[str, ...]] = {
    "coordinates": ("N", "2"),
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

#: What people write for a setting that holds or does not.
TRUTHS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "1"), True),
    **dict.fromkeys(("false", "no", "0"), False),
}

#: Key → the one without which it would have no effect.
NEEDS: Mapping[str, str] = {
    "capacity": "demand",
    "service_times": "time_windows",
    "duration_matrix": "time_windows",
}

#: Column of a CSV file → key and position in its rows.
COLUMNS: Mapping[str, tuple[str, int | None]] = {
    "x": ("coordinates", 0),
    "y": ("coordinates", 1),
    "demand": ("demand", None),
    "backhaul_demand": ("backhaul_demand", None),
    "ready_time": ("time_windows", 0),
    "due_time": ("time_windows", 1),
    "service_time": ("service_times", None),
    "prize": ("prizes", None),
}


# ---------------------------------------------------------------- JSON


def read_json(source: Source) -> BenchmarkInstance:
    """An instance from a JSON file."""
    return _build(source, load_json(source))


# ---------------------------------------------------------------- CSV


def looks_like_csv(source: Source) -> bool:
    """Columns of nodes, or a matrix; not a table of best-known values, for example."""
    lines = (line for line in source.lines if line.strip() and not line.startswith("#"))
    cells = [cell.strip().lower() for cell in re.split("[,;\t]", next(lines, ""))]
    return all(map(is_number, cells)) or not {"node", *COLUMNS}.isdisjoint(cells)


def read_csv(source: Source) -> BenchmarkInstance:
    """An instance from a CSV file."""
    fields: dict[str, Any] = {}
    rows: list[tuple[int, list[str]]] = []
    for number, line in enumerate(source.lines, start=1):
        if line.strip().startswith("#"):
            setting = _setting(source, number, line.strip("# \t"))
            if set(setting) & set(fields):
                raise source.fault(
                    "every setting once", f"a second {min(setting)}", CORRECT, line=number
                )
            fields.update(setting)
        elif line.strip():
            rows.append((number, [line]))
    if not rows:
        raise source.fault("the names of the columns", "nothing", CORRECT)
    first = rows[0][1][0]
    separator = max(",;\t", key=first.count)
    rows = [(number, _cells(text, separator)) for number, (text,) in rows]
    if all(is_number(cell) for cell in rows[0][1]):
        matrix = [source.numbers(cells, number) for number, cells in rows]
        return _build(source, {**fields, "cost_matrix": matrix})
    labels, columns = _columns(source, rows)
    return _build(source, {**fields, **columns}, labels)


def _setting(source: Source, number: int, text: str) -> dict[str, Any]:
    """One line `# key: value` (other remarks are skipped)."""
    key, colon, word = (part.strip() for part in text.partition(":"))
    if not colon or " " in key:
        return {}
    if key not in SETTINGS or SETTINGS[key] == (list,):
        known = [key for key, kinds in SETTINGS.items() if kinds != (list,)]
        raise _unknown_key(source, key, known, line=number)
    kinds = SETTINGS[key]
    if kinds == (str,):
        return {key: word}
    if kinds == (bool,):
        if word.lower() not in TRUTHS:
            raise source.fault("yes or no", repr(word), CORRECT, line=number, section=key)
        return {key: TRUTHS[word.lower()]}
    value = source.numbers([word], number, key)[0]
    return {key: int(value) if value == int(value) else value}


def _columns(
    source: Source, rows: Sequence[tuple[int, list[str]]]
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of the nodes, and the columns by key."""
    (head_line, head), *body = rows
    names = [name.strip().lower() for name in head]
    for name in names:
        if name not in (*COLUMNS, "node", "delivery"):
            known = ("node", *COLUMNS, "delivery")
            raise _unknown_key(source, name, known, line=head_line, what="columns")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise source.fault("every column once", f"{twice!r} twice", CORRECT, line=head_line)
    pieces: dict[str, list[Any]] = {}
    labels: list[str] = []
    deliveries: list[tuple[int, int, str]] = []
    for node, (line, cells) in enumerate(body):
        if len(cells) != len(names):
            raise source.fault(f"{len(names)} columns", f"{len(cells)}", CORRECT, line=line)
        row = dict(zip(names, cells, strict=True))
        labels.append(row.get("node", str(node)).strip())
        if row.get("delivery", "").strip():
            deliveries.append((line, node, row["delivery"].strip()))
        for name, (key, position) in COLUMNS.items():
            if name in row:
                value = source.numbers([row[name]], line, name)[0]
                entries = pieces.setdefault(key, [[] for _ in body] if position is not None else [])
                entries[node].append(value) if position is not None else entries.append(value)
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise source.fault("every node once", f"{twice!r} twice", CORRECT, section="node")
    if "delivery" in names:
        pieces["pairs"] = [
            [node, _find(source, labels, line, label)] for line, node, label in deliveries
        ]
    return tuple(labels), pieces


def _find(source: Source, labels: list[str], line: int, label: str) -> int:
    if label not in labels:
        raise source.fault("one of the nodes", repr(label), CORRECT, line=line, section="delivery")
    return labels.index(label)


def _cells(text: str, separator: str) -> list[str]:
    return next(csv.reader([text], delimiter=separator))


# ---------------------------------------------------------------- both


def _build(
    source: Source, fields: Mapping[str, Any], labels: tuple[str, ...] | None = None
) -> BenchmarkInstance:
    """The instance with these keys."""
    for key in fields:
        if key not in ARRAYS and key not in SETTINGS:
            raise _unknown_key(source, key, (*ARRAYS, *SETTINGS))
    settings = {
        key: _checked(source, key, value) for key, value in fields.items() if key in SETTINGS
    }
    size = _size(source, fields)
    arrays = {
        key: _array(source, key, fields[key], size) for key in ARRAYS if fields.get(key) is not None
    }
    matrix, pairs = arrays.pop("cost_matrix", None), arrays.pop("pairs", None)
    rounding = _known(source, "rounding", settings.pop("rounding", "exact"), ROUNDINGS)
    if matrix is not None:
        costs = EdgeCosts.of_matrix(matrix)
    else:
        costs = EdgeCosts.of_points(arrays["coordinates"], rounding=rounding)
    order, orders = _pickups_first(source, pairs, size)
    problem = settings.pop("problem", None) or name_problem(
        {**arrays, **settings, "pairs": pairs}, costs
    )
    problem = _known(source, "problem", problem, routing_layouts())
    _refuse_ignored(source, {**arrays, **settings, "pairs": pairs}, problem)
    names = labels or _names(source, settings.pop("nodes", None), size)
    duration = arrays.pop("duration_matrix", None)
    published, solution = settings.pop("best_known", None), settings.pop("best_solution", None)
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
            published=None if published is None else float(published),
            solution=_solution(source, solution, position),
            **settings,
            **{key: value[order] for key, value in arrays.items()},
        )
    except InvalidInstanceError as error:
        raise source.fault("a complete instance", f"this fault: {error}", CORRECT) from error


def _refuse_ignored(source: Source, fields: Mapping[str, Any], problem: str) -> None:
    """Raises for keys that would be read and then have no effect."""
    layouts = routing_layouts()
    known = layouts[problem].marks | layouts[problem].knows | set(layouts[problem].requires)
    given = {key for key, value in fields.items() if value is not None and value is not False}
    telling = {key for layout in layouts.values() for key in layout.marks | layout.knows}
    for key in sorted(given & telling - known):
        raise source.fault(
            f"no {key} in an instance of {problem}, which does not know it",
            key, "leave it out, or name another problem (or none)", section="problem",
        )  # fmt: skip
    for key, partner in NEEDS.items():
        if key in given and partner not in given:
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
    for key in ("coordinates", "cost_matrix"):
        if isinstance(fields.get(key), list) and fields[key]:
            return len(fields[key])
    raise source.fault(
        "coordinates or cost_matrix", f"the keys {sorted(fields)}", "give one of them (or both)"
    )


def _array(source: Source, key: str, value: Any, size: int) -> Any:
    """Numbers of the right shape."""
    letters = ARRAYS[key]
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise source.fault(
            f"numbers of shape [{', '.join(letters)}]", "other things or uneven lists", CORRECT,
            section=key,
        ) from error  # fmt: skip
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


def _checked(source: Source, key: str, value: Any) -> Any:
    """A single value of the right type."""
    kinds = SETTINGS[key]
    is_bool = isinstance(value, bool)
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


def _known(source: Source, key: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise source.fault(
            f"one of {', '.join(sorted(names))}", repr(name), CORRECT, section=key
        ) from UnknownNameError(key, name, names)
    return name


def _unknown_key(
    source: Source, key: str, known: Collection[str], line: int | None = None, what: str = "keys"
) -> Exception:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else "correct or remove it"
    return source.fault(f"the {what} {', '.join(sorted(known))}", repr(key), hint, line=line)
