"""From scheduling instances to the numbers of a CP-SAT model, and back to actions."""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.solvers._cpsat_shop import Jobs, Order, left_shifted

#: Units of the longest time, or of the work of all jobs on a single machine, if times are not whole
#: numbers (or larger than this many).
RESOLUTION = 1_000_000
#: Units of the largest weight, likewise.
WEIGHT_RESOLUTION = 100_000


class Task(NamedTuple):
    """An instance for the worker.

    Attributes:
        arguments: Arguments of the worker's function, without the limits.
        unit: What a unit of its objective is worth.
    """

    arguments: tuple[Any, ...]
    unit: float


class Model(NamedTuple):
    """How a problem is solved.

    Attributes:
        target: Function of the worker.
        formulate: Environment, state, first solutions → tasks.
        encode: Environment, state, solutions of the worker → actions `[B, T]`.
        idle: The action that changes nothing after the end: 0, or -1 for the last one.
    """

    target: str
    formulate: Callable[[Any, TensorDictBase, Tensor], list[Task]]
    encode: Callable[[Any, TensorDictBase, Sequence[Any]], Tensor]
    idle: int = 0


def find_unit(values: Sequence[float], resolution: int) -> float:
    """1 if all values are whole numbers and not too large, else a fraction of the largest."""
    largest = max(values, default=0.0)
    if largest <= resolution and all(float(value).is_integer() for value in values):
        return 1.0
    return largest / resolution


# ---------------------------------------------------------------- shops


def _shop_task(jobs: Jobs, starts: Mapping[tuple[int, int, int], float]) -> Task:
    """A task from a schedule to begin with: (job, place, machine) → start."""
    times = [time for job in jobs for operation in job for time in operation.values()]
    unit = find_unit(times, RESOLUTION)
    whole = [
        [{machine: math.floor(time / unit) for machine, time in op.items()} for op in job]
        for job in jobs
    ]
    # Of equal starts the earlier operation of a job comes first.
    order = sorted(starts, key=lambda key: (starts[key], key[1], key[0]))
    return Task((whole, order), unit)


def _job_shops(td: TensorDictBase) -> list[Jobs]:
    """The operations of JSSP and FJSP instances."""
    shops: list[Jobs] = []
    for row in td.select("proc_times", "start_op_per_job", "end_op_per_job", "pad_mask").cpu():
        times, pad = row["proc_times"].t().tolist(), row["pad_mask"].tolist()  # [O, M], [O]
        first, last = row["start_op_per_job"].tolist(), row["end_op_per_job"].tolist()
        shops.append(
            [
                [
                    {m: time for m, time in enumerate(times[op]) if time > 0}
                    for op in range(a, b + 1)
                ]
                for a, b in zip(first, last, strict=True)
                if not pad[a]
            ]
        )
    return shops


def _formulate_job_shops(env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
    schedule = env.get_schedule(td, first)
    starts, machines = schedule.start_times.tolist(), schedule.machines.tolist()  # [B, O]
    begins = td["start_op_per_job"].tolist()
    tasks = []
    for b, jobs in enumerate(_job_shops(td)):
        places = {
            (j, k, machines[b][begins[b][j] + k]): starts[b][begins[b][j] + k]
            for j, operations in enumerate(jobs)
            for k in range(len(operations))
        }
        tasks.append(_shop_task(jobs, places))
    return tasks


def _encode_job_shops(env: Any, td: TensorDictBase, orders: Sequence[Order]) -> Tensor:
    start = torch.zeros_like(td["pad_mask"], dtype=torch.float64, device="cpu")  # [B, O]
    machine = torch.zeros_like(start, dtype=torch.int64)
    begins = td["start_op_per_job"].tolist()
    for b, (jobs, order) in enumerate(zip(_job_shops(td), orders, strict=True)):
        starts, _ = left_shifted(jobs, order)
        for j, k, m in order:
            op = begins[b][j] + k
            start[b, op], machine[b, op] = starts[j, k], m
    device = td["pad_mask"].device
    return env.actions_from_schedule(td, start.to(device), machine.to(device))


def _flow_shops(td: TensorDictBase) -> list[Jobs]:
    """The operations of FFSP instances: one per stage."""
    num_stages = td["schedule"].shape[-2]
    size = td["run_time"].shape[-1] // num_stages
    return [
        [
            [{m: row[m] for m in range(s * size, (s + 1) * size)} for s in range(num_stages)]
            for row in rows
        ]
        for rows in td["run_time"].tolist()
    ]


def _formulate_flow_shops(env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
    num_jobs, num_stages = td["run_time"].shape[-2], td["schedule"].shape[-2]
    start, machine = env.get_schedule(td, first).by_job(num_jobs, num_stages)
    starts, machines = start.tolist(), machine.tolist()  # [B, J, S]
    return [
        _shop_task(
            jobs,
            {
                (j, s, machines[b][j][s]): starts[b][j][s]
                for j in range(num_jobs)
                for s in range(num_stages)
            },
        )
        for b, jobs in enumerate(_flow_shops(td))
    ]


def _encode_flow_shops(env: Any, td: TensorDictBase, orders: Sequence[Order]) -> Tensor:
    shape = (len(orders), td["run_time"].shape[-2], td["schedule"].shape[-2])
    start = torch.zeros(shape, dtype=torch.int64)
    machine = torch.zeros_like(start)
    for b, (jobs, order) in enumerate(zip(_flow_shops(td), orders, strict=True)):
        starts, _ = left_shifted(jobs, order)
        for j, s, m in order:
            start[b, j, s], machine[b, j, s] = int(starts[j, s]), m
    device = td["run_time"].device
    return env.actions_from_schedule(td, start.to(device), machine.to(device))


# ---------------------------------------------------------------- one machine


def _formulate_tardiness(env: Any, td: TensorDictBase, first: Tensor) -> list[Task]:
    tasks = []
    keys = ("job_due_time", "job_weight", "job_process_time")
    for row, actions in zip(td.select(*keys).cpu(), first.tolist(), strict=True):
        due, weight, process = (row[key][1:].double().tolist() for key in keys)
        whole = find_unit([*map(abs, due), *process], RESOLUTION) == 1.0
        time_unit = 1.0 if whole else sum(process) / RESOLUTION
        weight_unit = find_unit(weight, WEIGHT_RESOLUTION) or 1.0
        arguments = (
            # Later than the last job ends is late enough.
            [math.ceil(min(time, sum(process)) / time_unit) for time in due],
            [math.floor(value / weight_unit) for value in weight],
            [math.floor(time / time_unit) for time in process],
            [action - 1 for action in actions if action],
        )
        tasks.append(Task(arguments, time_unit * weight_unit))
    return tasks


def _encode_tardiness(env: Any, td: TensorDictBase, orders: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor(orders, device=td["job_weight"].device) + 1


_JOB_SHOP = Model("solve_shop", _formulate_job_shops, _encode_job_shops)

#: Name of an environment → how it is solved.
MODELS: Mapping[str, Model] = {
    "jssp": _JOB_SHOP,
    "fjsp": _JOB_SHOP,
    "ffsp": Model("solve_shop", _formulate_flow_shops, _encode_flow_shops, idle=-1),
    "smtwtp": Model("solve_tardiness", _formulate_tardiness, _encode_tardiness),
}
