"""Instances and solutions between the API's JSON and the library; used in worker processes only."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import json
import math
import re
import tempfile
import warnings

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensordict import TensorDict

from rl4co.core.errors import (
    ConfigError,
    InputSizeError,
    RL4COError,
    UnknownNameError,
    UnsupportedError,
)
from rl4co.data.formats import Benchmark, BenchmarkInstance, BenchmarkMedian, BenchmarkShop
from rl4co.data.formats.plain import to_plain
from rl4co.data.formats.read import read_instance
from rl4co.data.formats.shop import ShopInstance
from rl4co.data.generate import generate_env_data
from rl4co.serve._problems import PROBLEMS

#: Side of the square that random places of unit-square problems are scaled to.
SIDE = 100.0
_DIGITS = 2


class TooLargeError(RL4COError):
    """An instance beyond the limits of the service."""


class FieldError(RL4COError):
    """An error in a field of the request.

    Args:
        message: What is wrong.
        field: The field, such as `methods.0.name`.
    """

    def __init__(self, message: str, field: str) -> None:
        self.field = field
        super().__init__(message)


@contextlib.contextmanager
def field(name: str) -> Iterator[None]:
    """Errors in the block name a field of the request.

    Args:
        name: The field.
    """
    try:
        yield
    except (TooLargeError, InputSizeError, FieldError):
        raise
    except (RL4COError, OSError) as error:
        raise FieldError(str(error), name) from error


@dataclasses.dataclass(frozen=True)
class GivenInstance:
    """An instance of a request.

    Attributes:
        benchmark: The instance.
        plain: The instance as JSON, as the client knows it.
        nodes: Number in `plain` of each node of the benchmark; None: the same.
        notes: Warnings of the reader.
    """

    benchmark: Benchmark
    plain: dict[str, Any]
    nodes: list[int] | None = None
    notes: list[str] = dataclasses.field(default_factory=list)

    def to_client(self, actions: Sequence[int]) -> list[int]:
        """Actions of the environment (or nodes) in the client's numbers."""
        if self.nodes is None:
            return list(actions)
        return [self.nodes[action] for action in actions]

    def from_client(self, actions: Sequence[int], name: str) -> list[int]:
        """Actions in the client's numbers as those of the environment.

        Args:
            actions: Actions.
            name: The field of the request.
        """
        if self.nodes is None:
            return list(actions)
        position = {node: k for k, node in enumerate(self.nodes)}
        for action in actions:
            if action not in position:
                raise FieldError(
                    f"expected actions from 0 to {len(position) - 1}, got {action}; give another",
                    name,
                )
        return [position[action] for action in actions]

    def solution(self, actions: Sequence[int], found: Any = None) -> dict[str, Any]:
        """A solution in the form of the API.

        Args:
            actions: Actions of the environment.
            found: The solution that they build; None: derived from them.
        """
        instance = self.benchmark
        found = instance.from_actions(actions) if found is None else found
        feasible = True
        try:
            instance.check(found)
        except RL4COError:
            feasible = False
        facts: dict[str, Any] = {
            "cost": instance.objective(found),
            "feasible": feasible,
            "actions": self.to_client(actions),
        }
        if isinstance(instance, BenchmarkShop):
            rows = instance.record(found)["schedule"]
            facts["schedule"] = [
                {"job": job, "operation": number, **operation}
                for job, row in enumerate(rows)
                for number, operation in enumerate(row)
            ]
        elif isinstance(instance, BenchmarkMedian):
            facts["chosen"] = list(found)
        elif isinstance(instance, BenchmarkInstance):
            routes = [self.to_client(route) for route in found]
            if instance.layout.has_depot:
                facts["routes"] = routes
            else:
                facts["tour"] = routes[0] if routes else []
        return facts


def require_size(instance: Benchmark, max_nodes: int) -> None:
    """Raises if an instance is larger than the service solves."""
    machines = instance.shop.num_machines if isinstance(instance, BenchmarkShop) else 0
    if max(instance.size, machines) > max_nodes:
        raise TooLargeError(
            f"expected at most {max_nodes} nodes or operations, got {instance.size_text}; give a "
            "smaller instance, or use `rl4co solve`"
        )


# ---------------------------------------------------------------- reading


def read_plain(plain: Mapping[str, Any], problem: str | None, max_nodes: int) -> GivenInstance:
    """The instance that a client sends as JSON."""
    fields = {key: value for key, value in plain.items() if key != "nodes"}
    stated = fields.setdefault("problem", problem)
    if problem is not None and stated != problem:
        raise FieldError(
            f"expected an instance of {problem}, got one of {stated!r}; correct one of them",
            "instance.problem",
        )
    for value in fields.values():
        if isinstance(value, list) and len(value) > max(max_nodes, 1):
            raise TooLargeError(
                f"expected lists of at most {max_nodes} entries, got {len(value)}; give a smaller "
                "instance, or use `rl4co solve`"
            )
    content = json.dumps({key: value for key, value in fields.items() if value is not None})
    with field("instance"):
        benchmark, notes = _read("instance.json", content.encode())
        require_size(benchmark, max_nodes)
    pairs = fields.get("pairs")
    nodes = None if pairs is None else [0, *(p for p, _ in pairs), *(d for _, d in pairs)]
    return GivenInstance(benchmark, dict(plain), nodes, notes)


def read_file(file: Mapping[str, Any], problem: str | None, max_nodes: int) -> GivenInstance:
    """The instance of a file whose content a client sends."""
    # Its name serves to recognise the format; it never names a place on this machine.
    name = re.sub(r"[^\w.+-]", "_", re.split(r"[/\\]", file["filename"])[-1]).lstrip(".-")[-80:]
    content = file["content"].encode("utf-8", "surrogatepass")
    if file["encoding"] == "base64":
        try:
            content = base64.b64decode(content, validate=True)
        except binascii.Error as error:
            raise FieldError(
                f"expected base64, got: {error}; encode the bytes", "content"
            ) from None
    with field("content"):
        benchmark, notes = _read(name or "instance", content)
        if problem is not None:
            benchmark = benchmark.as_problem(problem)
        require_size(benchmark, max_nodes)
        return GivenInstance(benchmark, to_plain(benchmark), None, notes)


def _read(name: str, content: bytes) -> tuple[Benchmark, list[str]]:
    """The instance of a file with this name and content, and what the reader warns about."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            benchmark = _without_folder(read_instance(path))
        except (RL4COError, OSError) as error:
            # Messages name the file as the client does.
            kind = InputSizeError if isinstance(error, InputSizeError) else ConfigError
            raise kind(str(error).replace(f"{folder}/", "")) from error
    notes = [str(warning.message).replace(f"{folder}/", "") for warning in caught]
    return benchmark, notes


def _without_folder(instance: Benchmark) -> Benchmark:
    """The instance with its best-known value, but independent of the folder of its file."""
    changes: dict[str, Any] = {"stated_best_known": instance.best_known, "solution_file": None}
    if isinstance(instance, BenchmarkShop):
        source = instance.source and Path(instance.source.name)
        shop = dataclasses.replace(instance.shop, source=source)
        return dataclasses.replace(instance, shop=shop, **changes)
    assert isinstance(instance, BenchmarkInstance | BenchmarkMedian)
    source = instance.source and Path(instance.source.name)
    if isinstance(instance, BenchmarkInstance):
        changes["solution"] = None
    return dataclasses.replace(instance, source=source, **changes)


# ---------------------------------------------------------------- random instances


def random_instance(
    problem: str, size: int | None, seed: int, options: Mapping[str, Any], max_nodes: int
) -> GivenInstance:
    """A random instance with the distributions of the environment's generator.

    Places of the unit square are scaled to a square of side 100.
    """
    if problem not in _CONVERTERS:
        raise FieldError(str(UnknownNameError("problem", problem, _CONVERTERS)), "problem")
    facts = next(entry for entry in PROBLEMS if entry.name == problem)
    smallest, largest = facts.size_range
    size = facts.default_size if size is None else size
    if not smallest <= size <= largest:
        raise FieldError(
            f"expected {smallest} to {largest} {facts.size_name}, got {size}; give another size",
            "size",
        )
    params = _generator_params(problem, options)
    if size * params.get("num_machines", 1) > max_nodes:
        raise TooLargeError(f"expected at most {max_nodes} nodes or operations, got more")
    with field("options"):
        td = generate_env_data(problem, 1, size, seed=seed, generator_params=params)
    plain = {"name": f"{problem}{size}-{seed}", "problem": problem, **_CONVERTERS[problem](td[0])}
    return read_plain(plain, problem, max_nodes)


def _generator_params(problem: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the generator; raises for options that the problem does not have."""
    facts = next(entry for entry in PROBLEMS if entry.name == problem)
    known = {option.name: option for option in facts.options}
    params: dict[str, Any] = {}
    names = {"variant": "variant_preset", "machines": "num_machines", "facilities": "to_choose"}
    for name, value in options.items():
        place = f"options.{name}"
        if name not in known:
            raise FieldError(str(UnknownNameError(f"option of {problem}", name, known)), place)
        option = known[name]
        if option.kind == "choice" and value not in option.values:
            raise FieldError(str(UnknownNameError(name, value, option.values)), place)
        if option.kind == "integer":
            low, high = option.minimum or 0, option.maximum or 0
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise FieldError(f"expected {low} to {high} {name}, got {value!r}", place)
    for name, option in known.items():
        params[names[name]] = options.get(name, option.default)
    if problem == "flp" and "facilities" not in options:
        del params["to_choose"]  # the generator's default depends on the size
    return params


def _numbers(values: Any, factor: float = 1.0, digits: int = _DIGITS) -> Any:
    return np.round(values.double().numpy() * factor, digits).tolist()


def _with_depot(td: TensorDict, factor: float) -> Any:
    return [_numbers(td["depot"], factor), *_numbers(td["locs"], factor)]


def _amounts(demand: Any, capacity: float) -> list[int]:
    return [round(amount * capacity) for amount in demand.tolist()]


def _windows(windows: Any, factor: float = 1.0) -> list[list[float]]:
    """Time windows, widened to numbers with few digits."""
    scale = 10.0**_DIGITS
    return [
        [math.floor(a * factor * scale) / scale, math.ceil(b * factor * scale + 2) / scale]
        for a, b in windows.tolist()
    ]


def _cvrp(td: TensorDict, factor: float = SIDE) -> dict[str, Any]:
    capacity = float(td["capacity"])
    demand = [0, *_amounts(td["demand"], capacity)]
    return {"coordinates": _with_depot(td, factor), "demand": demand, "capacity": capacity}


def _cvrptw(td: TensorDict) -> dict[str, Any]:
    windows, service = _windows(td["time_windows"]), _numbers(td["durations"])
    return {**_cvrp(td, 1.0), "time_windows": windows, "service_times": service}


def _mtvrp(td: TensorDict) -> dict[str, Any]:
    capacity = float(td["capacity_original"])
    plain: dict[str, Any] = {
        "coordinates": _numbers(td["locs"], SIDE),
        "demand": _amounts(td["demand_linehaul"], capacity),
        "capacity": capacity,
    }
    if bool((td["demand_backhaul"] > 0).any()):
        plain["backhaul_demand"] = _amounts(td["demand_backhaul"], capacity)
    if bool(td["time_windows"].isfinite().all()):
        plain["time_windows"] = _windows(td["time_windows"], SIDE)
        plain["service_times"] = _numbers(td["service_time"], SIDE)
    if math.isfinite(limit := float(td["distance_limit"])):
        plain["max_length"] = round(limit * SIDE, _DIGITS) + 0.1
    return {**plain, **({"open_routes": True} if bool(td["open_route"]) else {})}


def _op(td: TensorDict) -> dict[str, Any]:
    prizes = [0.0, *_numbers(td["prize"], 100.0)]
    limit = round(float(td["max_length"]) * SIDE, _DIGITS)
    return {"coordinates": _with_depot(td, SIDE), "prizes": prizes, "max_length": limit}


def _pdp(td: TensorDict) -> dict[str, Any]:
    half = td["locs"].shape[0] // 2
    pairs = [[node, node + half] for node in range(1, half + 1)]
    return {"coordinates": _with_depot(td, SIDE), "pairs": pairs}


def _jssp(td: TensorDict) -> dict[str, Any]:
    plain = to_plain(BenchmarkShop.of(ShopInstance.from_tensordict(td)))
    return {key: plain[key] for key in ("machines", "jobs")}


_CONVERTERS: Mapping[str, Callable[[TensorDict], dict[str, Any]]] = {
    "tsp": lambda td: {"coordinates": _numbers(td["locs"], SIDE)},
    "cvrp": _cvrp,
    "cvrptw": _cvrptw,
    "mtvrp": _mtvrp,
    "op": _op,
    "pdp": _pdp,
    "jssp": _jssp,
    "flp": lambda td: {
        "coordinates": _numbers(td["locs"], SIDE),
        "facilities": int(td["to_choose"]),
    },
}


# ---------------------------------------------------------------- files


def export(given: GivenInstance, form: str) -> dict[str, str]:
    """An instance as the text of a file.

    Returns:
        `filename`, `media_type` and `content`.
    """
    instance = given.benchmark
    stem = re.sub(r"[^\w.+-]", "_", instance.name)[:80].lstrip(".-") or "instance"
    if form == "json":
        text, suffix, media = json.dumps(to_plain(instance)) + "\n", ".json", "application/json"
    elif form == "jsplib" and isinstance(instance, BenchmarkShop) and instance.problem == "jssp":
        text, suffix, media = _jsplib(instance.shop), ".txt", "text/plain"
    elif form == "csv" and isinstance(instance, BenchmarkInstance):
        text, suffix, media = _csv(to_plain(instance)), ".csv", "text/csv"
    elif (form, instance.problem) in _SECTIONS and isinstance(instance, BenchmarkInstance):
        text, media = _sections(instance, _SECTIONS[form, instance.problem]), "text/plain"
        suffix = {"tsplib": ".tsp", "cvrplib": ".vrp"}[form]
    else:
        raise FieldError(
            f"expected a format for {instance.problem}, got {form!r}; use json", "format"
        )
    return {"filename": f"{stem}{suffix}", "media_type": media, "content": text}


_SECTIONS = {("tsplib", "tsp"): "TSP", ("cvrplib", "cvrp"): "CVRP"}
_ROUNDING_TYPES = {"exact": "EXACT_2D", "nearest": "EUC_2D", "up": "CEIL_2D", "down": "FLOOR_2D"}


def _jsplib(shop: ShopInstance) -> str:
    rows = [
        " ".join(f"{machine} {time}" for op in job for machine, time in op.items())
        for job in shop.jobs
    ]
    return "\n".join([f"{shop.num_jobs} {shop.num_machines}", *rows]) + "\n"


def _csv(plain: dict[str, Any]) -> str:
    """One line per node, and single values as comments."""
    columns = {
        "coordinates": ("x", "y"),
        "demand": ("demand",),
        "backhaul_demand": ("backhaul_demand",),
        "time_windows": ("ready_time", "due_time"),
        "service_times": ("service_time",),
        "prizes": ("prize",),
    }
    present = [key for key in columns if key in plain]
    pairs = dict(plain.get("pairs", ()))
    if "coordinates" not in plain or "cost_matrix" in plain or "duration_matrix" in plain:
        raise UnsupportedError(
            "expected an instance with coordinates alone for a CSV file, got a matrix; use json"
        )
    lines = [
        f"# {key}: {str(value).lower() if isinstance(value, bool) else value}"
        for key, value in plain.items()
        if key not in columns and not isinstance(value, list)
    ]
    names = ["node", *(name for key in present for name in columns[key])]
    lines.append(",".join([*names, *(["delivery"] if pairs else [])]))
    for node in range(len(plain["coordinates"])):
        cells: list[Any] = [node]
        for key in present:
            value = plain[key][node]
            cells += value if isinstance(value, list) else [value]
        if pairs:
            cells.append(pairs.get(node, ""))
        lines.append(",".join(map(str, cells)))
    return "\n".join(lines) + "\n"


def _sections(instance: BenchmarkInstance, kind: str) -> str:
    """The format of TSPLIB and CVRPLIB."""
    rounding = instance.edge_costs.rounding.name
    if not instance.edge_costs.is_euclidean or rounding not in _ROUNDING_TYPES:
        raise UnsupportedError(
            f"expected Euclidean distances for {kind} files, got others; use json"
        )
    assert instance.coordinates is not None
    head = [
        f"NAME : {instance.name}",
        f"TYPE : {kind}",
        f"DIMENSION : {instance.num_nodes}",
        f"EDGE_WEIGHT_TYPE : {_ROUNDING_TYPES[rounding]}",
    ]
    places = [
        f"{node} {x:.12g} {y:.12g}" for node, (x, y) in enumerate(instance.coordinates, start=1)
    ]
    body = ["NODE_COORD_SECTION", *places]
    if kind == "CVRP":
        assert instance.demand is not None
        head.append(f"CAPACITY : {instance.capacity:.12g}")
        demand = [f"{node} {amount:.12g}" for node, amount in enumerate(instance.demand, start=1)]
        body += ["DEMAND_SECTION", *demand, "DEPOT_SECTION", "1", "-1"]
    return "\n".join([*head, *body, "EOF"]) + "\n"
