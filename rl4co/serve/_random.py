"""Random instances with the distributions of the environments; used in worker processes only."""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensordict import TensorDict

from rl4co.core.errors import UnknownNameError
from rl4co.data.formats import BenchmarkShop
from rl4co.data.formats.plain import to_plain
from rl4co.data.formats.shop import ShopInstance
from rl4co.data.generate import generate_env_data
from rl4co.serve._instances import ClientInstance, FieldError, TooLargeError, field, read_plain
from rl4co.serve._problems import PROBLEMS
from rl4co.serve.schemas import Problem

#: Side of the square that coordinates of the unit square are scaled to.
SIDE = 100.0
_DIGITS = 2


#: Option of the API -> argument of the generator.
_ARGUMENTS = {"variant": "variant_preset", "machines": "num_machines", "facilities": "to_choose"}


def random_instance(
    name: str, size: int | None, seed: int, options: Mapping[str, Any], max_nodes: int
) -> ClientInstance:
    """A random instance with the distributions of the environment's generator.

    Coordinates of the unit square are scaled to a square of side 100.
    """
    problem = next((each for each in PROBLEMS if each.name == name), None)
    if problem is None:
        raise FieldError(str(UnknownNameError("problem", name, _CONVERTERS)), "problem")
    smallest, largest = problem.size_range
    size = problem.default_size if size is None else size
    if not smallest <= size <= largest:
        raise FieldError(
            f"expected {smallest} to {largest} {problem.size_name}, got {size}; give another size",
            "size",
        )
    params = _generator_params(problem, options)
    if size * params.get("num_machines", 1) > max_nodes:
        raise TooLargeError(f"expected at most {max_nodes} nodes or operations, got more")
    with field("options"):
        td = generate_env_data(name, 1, size, seed=seed, generator_params=params)
    plain = {"name": f"{name}{size}-{seed}", "problem": name, **_CONVERTERS[name](td[0])}
    return read_plain(plain, name, max_nodes)


def _generator_params(problem: Problem, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the generator; raises for options that the problem does not have."""
    allowed = {option.name: option for option in problem.options}
    for name, value in options.items():
        place = f"options.{name}"
        if name not in allowed:
            message = str(UnknownNameError(f"option of {problem.name}", name, allowed))
            raise FieldError(message, place)
        option = allowed[name]
        if option.kind == "choice" and value not in option.values:
            raise FieldError(str(UnknownNameError(name, value, option.values)), place)
        if option.kind == "integer":
            low, high = option.minimum or 0, option.maximum or 0
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise FieldError(f"expected {low} to {high} {name}, got {value!r}", place)
    values = {name: option.default for name, option in allowed.items()} | dict(options)
    if "facilities" in values and "facilities" not in options:
        del values["facilities"]  # the generator's default depends on the size
    return {_ARGUMENTS[name]: value for name, value in values.items()}


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
