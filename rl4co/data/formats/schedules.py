"""`BenchmarkShop`: one (flexible) job shop in its original units, and its solutions, schedules.

A schedule has a machine and a start for each operation, job by job. Machines and jobs count from 0,
whatever the file of the instance does. Its file is JSON; `makespan` and each `end` may be left out:

```json
{
  "name": "two jobs",
  "problem": "jssp",
  "makespan": 7,
  "schedule": [
    [{"machine": 1, "start": 0, "end": 4}, {"machine": 0, "start": 4, "end": 7}],
    [{"machine": 0, "start": 0, "end": 2}, {"machine": 1, "start": 4, "end": 5}]
  ]
}
```
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tensordict import TensorDict
from torch import Tensor
from typing_extensions import override

from rl4co.core.errors import InvalidSolutionError
from rl4co.core.registry import ENVS
from rl4co.data.formats.benchmark import Benchmark, one_solution
from rl4co.data.formats.feasibility import Violation
from rl4co.data.formats.shop import Job, ShopInstance, batch_instances
from rl4co.data.formats.shop_feasibility import find_violation, misplaced
from rl4co.data.formats.solutions import load_json
from rl4co.data.formats.source import CORRECT, Source
from rl4co.data.layouts import name_shop

#: Keys of a schedule in JSON, and of one of its operations.
JSON_KEYS = ("name", "problem", "makespan", "schedule")
OPERATION_KEYS = ("machine", "start", "end")


class Slot(NamedTuple):
    """Where and when an operation runs.

    Attributes:
        machine: The machine, from 0.
        start: When it starts.
    """

    machine: int
    start: int


#: The slots of all operations, job by job; plain pairs will do.
Schedule = tuple[tuple[Slot, ...], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class BenchmarkShop(Benchmark):
    """A job shop in original times, with its best-known makespan and bounds.

    Operations that take no time need no machine for it: they start when the one before them ends.

    Attributes:
        shop: Jobs, operations and machines.
        problem: Name of the environment, `jssp` or `fjsp`.
        stated_best_known: Best-known makespan, if one was stated.
        lower_bound: Value that no makespan is below, if a table or the file has one.
        solution_file: File with the best-known schedule.
    """

    shop: ShopInstance
    problem: str
    stated_best_known: float | None = None
    lower_bound: float | None = None
    solution_file: Path | None = None

    def __post_init__(self) -> None:
        _ = self.shop.timed_jobs  # raises for jobs that take no time

    @classmethod
    def of(cls, shop: ShopInstance) -> BenchmarkShop:
        """A job shop with the bound of its file; flexible if some operation is."""
        return cls(shop, name_shop(shop), lower_bound=shop.lower_bound)

    def __repr__(self) -> str:
        return f"BenchmarkShop({self.name!r}, problem={self.problem!r}, {self.size_text})"

    # ---------------------------------------------------------------- facts

    value_name = "makespan"
    maximize = False
    decimals = 0
    suffixes = (".json",)

    @property
    @override
    def name(self) -> str:
        return self.shop.name

    @property
    @override
    def source(self) -> Path | None:
        return self.shop.source

    @property
    @override
    def size(self) -> int:
        return self.shop.num_ops

    @property
    @override
    def size_text(self) -> str:
        jobs, machines = self.shop.num_jobs, self.shop.num_machines
        return f"{jobs} jobs, {machines} machines, {self.size} operations"

    @override
    def _find_best_known(self) -> float | None:
        return self.shop.upper_bound

    # ---------------------------------------------------------------- solutions

    @override
    def objective(self, schedule: Schedule) -> float:
        return float(max(end for job in self._ends(schedule) for end in job))

    @override
    def check(self, schedule: Schedule, tolerance: float = 0.0) -> None:
        _require(find_violation(self.shop, schedule))

    @override
    def lines(self, schedule: Schedule) -> list[str]:
        return [
            f"Job {number}: " + ", ".join("m{machine} {start}-{end}".format(**op) for op in job)
            for number, job in enumerate(self._plain(schedule))
        ]

    @override
    def record(self, schedule: Schedule) -> dict[str, Any]:
        return {
            "jobs": self.shop.num_jobs,
            "machines": self.shop.num_machines,
            "operations": self.size,
            "makespan": int(self.objective(schedule)),
            "schedule": self._plain(schedule),
        }

    def _plain(self, schedule: Schedule) -> list[list[dict[str, int]]]:
        return [
            [
                dict(zip(OPERATION_KEYS, (*slot, end), strict=True))
                for slot, end in zip(*job, strict=True)
            ]
            for job in zip(schedule, self._ends(schedule), strict=True)
        ]

    def _ends(self, schedule: Schedule) -> list[list[int]]:
        """The end of each operation."""
        _require(next(misplaced(self.shop, schedule), None))
        return [
            [start + operation[machine] for (machine, start), operation in zip(*job, strict=True)]
            for job in zip(schedule, self.shop.jobs, strict=True)
        ]

    # ---------------------------------------------------------------- files

    @override
    def format_solution(self, schedule: Schedule, suffix: str) -> str:
        facts = {
            "name": self.name,
            "problem": self.problem,
            "makespan": int(self.objective(schedule)),
        }
        head = [f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in facts.items()]
        rows = ",\n".join(f"  {json.dumps(job)}" for job in self._plain(schedule))
        return f'{{\n{"".join(head)} "schedule": [\n{rows}\n ]\n}}\n'

    @override
    def read_solution(self, path: str | os.PathLike[str]) -> Schedule:
        source = Source.read(path)
        data = load_json(source)
        rows = _read_rows(source, data)
        schedule = tuple(tuple(Slot(op["machine"], op["start"]) for op in job) for job in rows)
        violation = find_violation(self.shop, schedule) or self._wrong_value(schedule, rows, data)
        if violation is not None:
            raise source.fault(
                f"a schedule of {self.name} in which {violation.rule}",
                violation.place,
                "use another one (the file's may be that of another instance)",
            )
        return schedule

    def _wrong_value(
        self, schedule: Schedule, rows: list[list[dict[str, int]]], data: dict[str, object]
    ) -> Violation | None:
        """The first end of an operation, or the makespan, that is not what the file says."""
        for job, ends in enumerate(self._ends(schedule)):
            for number, end in enumerate(ends):
                if (stated := rows[job][number].get("end", end)) != end:
                    place = f"job {job}, operation {number}: an end at {stated}, not {end}"
                    return Violation("every operation takes its processing time", place)
        makespan = int(self.objective(schedule))
        if data.get("makespan", makespan) != makespan:
            rule = f"the last operation ends at the makespan, {makespan}"
            return Violation(rule, repr(data["makespan"]))
        return None

    # ---------------------------------------------------------------- the environment's view

    def to_tensordict(self, normalize: bool) -> TensorDict:
        """The instance for its environment, as a batch of one, in original times.

        Operations that take no time are left out.

        Args:
            normalize: Whether it is for a policy, which scales times itself: float32, else float64.
        """
        td = batch_instances([self.shop])
        return td if normalize else td.set("proc_times", td["proc_times"].double())

    def from_actions(self, actions: Tensor | Sequence[int]) -> Schedule:
        """The schedule of a solution in the environment's encoding.

        Args:
            actions: `[T]` or `[1, T]`.

        Raises:
            InvalidSolutionError: The actions break a constraint.
        """
        env = _environment(self.problem)
        state = env.reset(self.to_tensordict(normalize=False))
        solution = one_solution(actions).unsqueeze(0)  # [1, T]
        env.check_solution_validity(state, solution)
        starts, _, machines = (times[0].tolist() for times in env.get_schedule(state, solution))
        timed = map(Slot, machines, map(round, starts))
        return tuple(_with_no_time(job, timed) for job in self.shop.jobs)

    @override
    def to_actions(self, schedule: Schedule) -> Tensor:
        self.check(schedule)
        slots = [
            (machine, start)
            for job in zip(schedule, self.shop.jobs, strict=True)
            for (machine, start), operation in zip(*job, strict=True)
            if operation[machine]
        ]
        machines, starts = torch.tensor(slots).t().unsqueeze(1)  # [1, O] each
        actions: Tensor = _environment(self.problem).actions_from_schedule(
            self.to_tensordict(normalize=False), starts, machines
        )
        return actions


@functools.cache
def _environment(problem: str) -> Any:
    return ENVS[problem]()


def _with_no_time(job: Job, timed: Iterator[Slot]) -> tuple[Slot, ...]:
    """The slots of a job, from those of all operations that take time, one job after the other."""
    slots: list[Slot] = []
    end = 0
    for operation in job:
        takes_time = any(operation.values())
        slots.append(next(timed) if takes_time else Slot(next(iter(operation)), end))
        end = slots[-1].start + operation[slots[-1].machine]
    return tuple(slots)


def _require(violation: Violation | None) -> None:
    if violation is not None:
        raise InvalidSolutionError(violation.rule_and_place, [0], 1)


# ---------------------------------------------------------------- files


def _read_rows(source: Source, data: dict[str, object]) -> list[list[dict[str, int]]]:
    """Machine, start and end of each operation, job by job, as a file has them."""
    rows = data.get("schedule")
    if set(data) - set(JSON_KEYS) or not isinstance(rows, list):
        raise source.fault(
            f"a schedule (keys: {', '.join(JSON_KEYS)})", f"the keys {sorted(data)}", CORRECT
        )
    for number, job in enumerate(rows):
        wrong = [op for op in job if not _is_operation(op)] if isinstance(job, list) else [job]
        if wrong:
            raise source.fault(
                f"a list of operations, each with {', '.join(OPERATION_KEYS)} as whole numbers",
                json.dumps(wrong[0])[:60],
                CORRECT,
                section=f"schedule, job {number}",
            )
    return rows


def _is_operation(value: object) -> bool:
    if not isinstance(value, dict) or not {"machine", "start"} <= set(value) <= set(OPERATION_KEYS):
        return False
    return all(isinstance(x, int) and not isinstance(x, bool) for x in value.values())
