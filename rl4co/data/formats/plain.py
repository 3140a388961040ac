"""Instances as JSON objects: job shops and facility location besides routing problems.

A job shop has `jobs`, lists of operations in their order; an operation is `[machine, time]`, or in
a flexible job shop a list of such pairs, one for each machine that can run it:

```json
{"problem": "jssp", "machines": 2, "jobs": [[[0, 3], [1, 2]], [[1, 4], [0, 1]]]}
```

Facility location has the number of `facilities`, and `coordinates` or a `cost_matrix`:

```json
{"problem": "flp", "facilities": 1, "coordinates": [[0, 0], [0, 3], [4, 3]]}
```

Machines, jobs and locations count from 0. :mod:`~rl4co.data.formats.custom` has routing problems.
"""

from __future__ import annotations

import dataclasses
import math

from typing import Any

from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.data.formats.benchmark import Benchmark
from rl4co.data.formats.custom import ARRAYS, build_instance, read_array, read_fields, unknown_key
from rl4co.data.formats.distances import ROUNDINGS, EdgeCosts
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.formats.pmed import BenchmarkMedian
from rl4co.data.formats.schedules import BenchmarkShop
from rl4co.data.formats.shop import Operation, ShopInstance
from rl4co.data.formats.source import CORRECT, Source

#: Largest processing time: sums of them are exact in the environments' numbers.
MAX_TIME = 2**20

_COMMON = ("name", "problem", "comment", "best_known")
SHOP_KEYS = (*_COMMON, "machines", "jobs")
MEDIAN_KEYS = (*_COMMON, "facilities", "coordinates", "cost_matrix")


def read_json(source: Source) -> BenchmarkInstance | BenchmarkShop | BenchmarkMedian:
    """Read an instance of any problem from a JSON file."""
    fields = read_fields(source)
    if "jobs" in fields:
        return _read_shop(source, _known(source, fields, SHOP_KEYS))
    if "facilities" in fields:
        return _read_median(source, _known(source, fields, MEDIAN_KEYS))
    return build_instance(source, fields)


def _known(source: Source, fields: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The fields, if all of their keys have a meaning and the common ones the right type."""
    for key in fields:
        if key not in keys:
            raise unknown_key(source, key, keys)
    for key in ("name", "problem", "comment"):
        if not isinstance(fields.get(key, ""), str):
            raise source.fault("a text", repr(fields[key])[:60], CORRECT, section=key)
    best = fields.get("best_known")
    if best is not None and not (_is_number(best) and math.isfinite(best)):
        raise source.fault("a number", repr(best)[:60], CORRECT, section="best_known")
    return fields


def _read_shop(source: Source, fields: dict[str, Any]) -> BenchmarkShop:
    rows = fields["jobs"]
    if not isinstance(rows, list) or not rows or not all(isinstance(r, list) and r for r in rows):
        raise source.fault("lists of operations", repr(rows)[:60], CORRECT, section="jobs")
    jobs = tuple(
        tuple(_operation(source, value, f"jobs, job {number}") for value in row)
        for number, row in enumerate(rows)
    )
    needed = 1 + max(machine for job in jobs for operation in job for machine in operation)
    machines = fields.get("machines", needed)
    if not _is_whole(machines) or not needed <= machines <= sum(map(len, jobs)) * needed:
        raise source.fault(
            f"at least {needed} machines, which the operations name", repr(machines)[:60], CORRECT,
            section="machines",
        )  # fmt: skip
    shop = BenchmarkShop.of(
        ShopInstance(fields.get("name", source.name), machines, jobs, source.path)
    )
    best = fields.get("best_known")
    shop = dataclasses.replace(shop, stated_best_known=None if best is None else float(best))
    problem = fields.get("problem", shop.problem)
    if problem not in ("jssp", "fjsp"):
        raise source.fault(
            "jssp or fjsp, as there are jobs", repr(problem)[:60], CORRECT, section="problem"
        ) from UnknownNameError("problem", problem, ("jssp", "fjsp"))
    return shop.as_problem(problem)


def _operation(source: Source, value: Any, place: str) -> Operation:
    """One operation: `[machine, time]`, or a list of such pairs."""
    pairs = value if isinstance(value, list) and value and isinstance(value[0], list) else [value]
    operation: dict[int, int] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_whole, pair)):
            raise source.fault(
                "[machine, time] as whole numbers, or a list of such pairs", repr(pair)[:60],
                CORRECT, section=place,
            )  # fmt: skip
        machine, time = pair
        if not 0 <= machine < MAX_TIME or not 0 <= time <= MAX_TIME or machine in operation:
            raise source.fault(
                f"different machines from 0, and times from 0 to {MAX_TIME}", repr(pair)[:60],
                CORRECT, section=place,
            )  # fmt: skip
        operation[machine] = time
    return operation


def _read_median(source: Source, fields: dict[str, Any]) -> BenchmarkMedian:
    if fields.get("problem", "flp") != "flp":
        raise source.fault(
            "flp, as there are facilities", repr(fields["problem"])[:60], CORRECT, section="problem"
        )
    size = next(
        (len(fields[k]) for k in MEDIAN_KEYS if k in ARRAYS and isinstance(fields.get(k), list)), 0
    )
    arrays = {
        key: read_array(source, key, fields[key], size) for key in MEDIAN_KEYS
        if key in ARRAYS and fields.get(key) is not None
    }  # fmt: skip
    if len(arrays) != 1:
        raise source.fault(
            "either coordinates or a cost_matrix", f"the keys {sorted(fields)}", CORRECT
        )
    count = fields["facilities"]
    if not _is_whole(count) or not 1 <= count <= size:
        raise source.fault(
            f"a whole number from 1 to {size}", repr(count)[:60], CORRECT, section="facilities"
        )
    places = arrays.get("coordinates")
    costs = arrays["cost_matrix"] if places is None else EdgeCosts.of_points(places).all_pairs()
    if (costs < 0).any():
        raise source.fault("costs that are not negative", f"{costs.min():g}", CORRECT)
    best = fields.get("best_known")
    return BenchmarkMedian(
        fields.get("name", source.name), costs, count, source.path,
        stated_best_known=None if best is None else float(best),
        coordinates=places,
    )  # fmt: skip


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---------------------------------------------------------------- writing


def to_plain(instance: Benchmark) -> dict[str, Any]:
    """An instance as a JSON object that :func:`read_json` reads.

    Nodes are in the order of the environment (pickups before deliveries).

    Args:
        instance: The instance.

    Raises:
        UnsupportedError: It has something that JSON files cannot have, such as fixed edges.
    """
    plain: dict[str, Any] = {"name": instance.name, "problem": instance.problem}
    if isinstance(instance, BenchmarkShop):
        shop = instance.shop
        jobs = [[_plain_operation(operation) for operation in job] for job in shop.jobs]
        return {**plain, "machines": shop.num_machines, "jobs": jobs, **_best(instance)}
    if isinstance(instance, BenchmarkMedian):
        places = instance.coordinates
        where = (
            {"cost_matrix": instance.costs.tolist()}
            if places is None
            else {"coordinates": places.tolist()}
        )
        return {**plain, "facilities": instance.num_facilities, **where, **_best(instance)}
    if not isinstance(instance, BenchmarkInstance):
        raise UnsupportedError(f"expected an instance from a file, got a {type(instance).__name__}")
    return {**plain, **_routing(instance), **_best(instance)}


def _plain_operation(operation: Operation) -> list[Any]:
    pairs = [list(pair) for pair in operation.items()]
    return pairs[0] if len(pairs) == 1 else pairs


def _best(instance: Benchmark) -> dict[str, float]:
    return {} if not instance.best_known else {"best_known": instance.best_known}


def _routing(instance: BenchmarkInstance) -> dict[str, Any]:
    if instance.fixed_edges is not None:
        raise UnsupportedError(
            f"expected an instance without fixed edges, got {instance.name}; JSON has no key for "
            "them, solve the file itself"
        )
    plain: dict[str, Any] = {}
    costs = instance.edge_costs
    if instance.coordinates is not None:
        plain["coordinates"] = instance.coordinates.tolist()
    rounding = costs.rounding.name
    if costs.is_euclidean and rounding in ROUNDINGS:
        plain |= {} if rounding == "exact" else {"rounding": rounding}
    else:
        plain["cost_matrix"] = instance.costs.tolist()
    for key in ("duration_matrix", "demand", "backhaul_demand", "time_windows", "service_times",
                "prizes", "pairs"):  # fmt: skip
        value = getattr(instance, key)
        if value is not None:
            plain[key] = value.tolist()
    for key in ("capacity", "max_length", "vehicles"):
        value = getattr(instance, key)
        if value is not None:
            plain[key] = value
    return {**plain, **({"open_routes": True} if instance.open_routes else {})}
