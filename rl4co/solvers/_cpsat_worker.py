"""CP-SAT models of scheduling problems, as functions of plain numbers for worker processes.

Importing this module needs OR-Tools and neither torch nor other modules of the library that do.
"""

from __future__ import annotations

import itertools
import time

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ortools.sat.python import cp_model

from rl4co.solvers._job_report import is_cancelled, job_start, record_cost, report_incumbent
from rl4co.solvers._orders import Jobs, Order, left_shifted

#: Most jobs for which the order of each triple is modelled, which yields the best bounds.
MAX_TRIPLES = 60


class Limits(NamedTuple):
    """When to stop.

    Attributes:
        max_runtime: Seconds, the start of the process and building the model included.
        num_workers: Threads.
        seed: Random seed.
        unit: What one unit of the objective is worth, for the reported costs.
    """

    max_runtime: float
    num_workers: int
    seed: int
    unit: float


def solve_shop(jobs: Jobs, order: Order, limits: Limits) -> tuple[Any, float, bool]:
    """Shortest schedule of a (flexible) job shop.

    Args:
        jobs: The operations of each job, with whole processing times.
        order: A schedule to start from: (job, place in the job, machine) of all operations in the
            order of their starts. It is returned if nothing better is found.
        limits: When to stop.

    Returns:
        Such an order for the best schedule, a lower bound on the makespan, and whether the schedule
        is proven to be optimal.
    """
    limits = Limits(*limits)
    began = job_start(limits.max_runtime)
    longest = max(sum(min(operation.values()) for operation in job) for job in jobs)
    report_incumbent((list(order), longest, False))
    shop = _Shop(jobs, order)
    record_cost(shop.horizon * limits.unit)
    solver, has_solution, status = _solve(shop.model, limits, began, shop.order)
    if not has_solution:
        return list(order), max(solver.best_objective_bound, longest), False
    return shop.order(solver), solver.best_objective_bound, status == cp_model.OPTIMAL


class _Shop:
    """The model of a shop.

    Args:
        jobs: See :func:`solve_shop`.
        order: See :func:`solve_shop`.
    """

    def __init__(self, jobs: Any, order: Order) -> None:
        self.jobs, self.model = jobs, cp_model.CpModel()
        self.first_starts, self.horizon = left_shifted(jobs, order)
        self.first_machines = {(job, place): machine for job, place, machine in order}
        self.makespan = self.model.new_int_var(0, self.horizon, "")
        self.model.add_hint(self.makespan, self.horizon)
        self.starts: dict[tuple[int, int], Any] = {}
        self.choices: dict[tuple[int, int], dict[int, Any]] = {}
        self.intervals: dict[int, list[Any]] = {}
        #: Machine → what operations add to its load, and the least time before and after them.
        self.loads: dict[int, list[tuple[Any, int, int]]] = {}
        for job in range(len(jobs)):
            self._add_job(job)
        for machine, intervals in self.intervals.items():
            self.model.add_no_overlap(intervals)
            # Implied, but the bound of the search is much better with it.
            loads, heads, tails = zip(*self.loads[machine], strict=True)
            self.model.add(self.makespan >= min(heads) + sum(loads) + min(tails))
        self.model.minimize(self.makespan)

    def _add_job(self, job: int) -> None:
        operations = self.jobs[job]
        shortest = [min(operation.values()) for operation in operations]
        previous = None
        for place, operation in enumerate(operations):
            key, head, tail = (job, place), sum(shortest[:place]), sum(shortest[place + 1 :])
            start = self.model.new_int_var(head, self.horizon - tail - shortest[place], "")
            self.model.add_hint(start, self.first_starts[key])
            self.starts[key] = start
            if previous is not None:
                self.model.add(start >= previous)
            if len(operation) > 1:
                previous = self._add_choice(key, operation, head, tail)
                continue
            ((machine, duration),) = operation.items()
            interval = self.model.new_fixed_size_interval_var(start, duration, "")
            self.intervals.setdefault(machine, []).append(interval)
            self.loads.setdefault(machine, []).append((duration, head, tail))
            previous = start + duration
        self.model.add(self.makespan >= previous)

    def _add_choice(self, key: tuple[int, int], operation: Any, head: int, tail: int) -> Any:
        """Adds an operation that runs on one of several machines; returns its end."""
        start, shortest = self.starts[key], min(operation.values())
        end = self.model.new_int_var(head + shortest, self.horizon - tail, "")
        self.model.add_hint(end, self.first_starts[key] + operation[self.first_machines[key]])
        choices = self.choices.setdefault(key, {})
        for machine, duration in operation.items():
            runs = choices[machine] = self.model.new_bool_var("")
            self.model.add_hint(runs, machine == self.first_machines[key])
            interval = self.model.new_optional_interval_var(start, duration, end, runs, "")
            self.intervals.setdefault(machine, []).append(interval)
            self.loads.setdefault(machine, []).append((duration * runs, head, tail))
        self.model.add_exactly_one(choices.values())
        return end

    def order(self, solver: Any) -> list[tuple[int, int, int]]:
        """The operations in the order of their starts, by the values of its solver."""
        operations = []
        for (job, place), start in self.starts.items():
            choices = self.choices.get((job, place))
            machine = next(iter(self.jobs[job][place]))
            if choices is not None:
                machine = next(m for m, runs in choices.items() if solver.boolean_value(runs))
            operations.append((solver.value(start), place, job, machine))
        # Of equal starts the earlier operation of a job comes first.
        return [(job, place, machine) for _, place, job, machine in sorted(operations)]


def solve_tardiness(
    due: Sequence[int],
    weight: Sequence[int],
    process: Sequence[int],
    order: Sequence[int],
    limits: Limits,
) -> tuple[Any, float, bool]:
    """Order of jobs on one machine with the least weighted tardiness.

    The model decides for each pair which job comes first; a job ends after all those before it.

    Args:
        due: Due times of the jobs.
        weight: Weights.
        process: Processing times.
        order: The jobs in an order to start from.
        limits: When to stop.

    Returns:
        The jobs in the best order, a lower bound on the cost, and whether it is proven to be
        optimal.
    """
    limits = Limits(*limits)
    began = job_start(limits.max_runtime)
    report_incumbent((list(order), 0.0, False))
    model, size, horizon = cp_model.CpModel(), len(process), sum(process)
    place = {job: position for position, job in enumerate(order)}
    before: dict[tuple[int, int], Any] = {}
    for i, j in itertools.combinations(range(size), 2):
        first = model.new_bool_var("")
        before[i, j], before[j, i] = first, first.negated()
        model.add_hint(first, place[i] < place[j])
        # Some optimal order has the shorter, heavier and more urgent one of two jobs first.
        if process[i] <= process[j] and weight[i] >= weight[j] and due[i] <= due[j]:
            model.add(first == 1)
        elif process[i] >= process[j] and weight[i] <= weight[j] and due[i] >= due[j]:
            model.add(first == 0)
    ends, costs, intervals = [], [], []
    for job, duration in enumerate(process):
        end = model.new_int_var(duration, horizon, "")
        wait = sum(process[i] * before[i, job] for i in range(size) if i != job)
        model.add(end == duration + wait)
        ends.append(end)
        intervals.append(model.new_interval_var(end - duration, duration, end, ""))
        if weight[job] and due[job] < horizon:  # otherwise it never costs anything
            late = model.new_int_var(max(0, duration - due[job]), horizon - due[job], "")
            model.add(late >= end - due[job])
            costs.append(weight[job] * late)
    if size <= MAX_TRIPLES:
        for i, j, k in itertools.permutations(range(size), 3):
            if i < j and i < k:
                model.add_bool_or([before[j, i], before[k, j], before[i, k]])
    else:
        model.add_no_overlap(intervals)
    model.minimize(sum(costs))
    record_cost(_tardiness(due, weight, process, order) * limits.unit)

    def in_order(solver: Any) -> list[int]:
        # A job of duration 0 (by rounding) ends with the one before it.
        return sorted(range(size), key=lambda job: (solver.value(ends[job]), process[job] > 0))

    solver, has_solution, status = _solve(model, limits, began, in_order, linearization_level=2)
    if not has_solution:
        return list(order), max(solver.best_objective_bound, 0.0), False
    return in_order(solver), solver.best_objective_bound, status == cp_model.OPTIMAL


def _tardiness(
    due: Sequence[int], weight: Sequence[int], process: Sequence[int], order: Sequence[int]
) -> int:
    ends = itertools.accumulate(process[job] for job in order)
    return sum(weight[job] * max(0, end - due[job]) for job, end in zip(order, ends, strict=True))


def _solve(
    model: Any, limits: Limits, began: float, read: Callable[[Any], Any], **parameters: Any
) -> tuple[Any, bool, Any]:
    """The solver after its search, whether it has a solution, and its status.

    Args:
        model: The model.
        limits: When to stop.
        began: When the limit of the job did.
        read: Reads a solution from the values of a solver.
        parameters: Parameters of CP-SAT.
    """
    solver = cp_model.CpSolver()
    left = limits.max_runtime - (time.perf_counter() - began)
    solver.parameters.max_time_in_seconds = max(left, 1e-3)
    solver.parameters.num_workers = limits.num_workers
    solver.parameters.random_seed = limits.seed
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    status = solver.solve(model, _Recorder(limits.unit, read))
    return solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE), status


class _Recorder(cp_model.CpSolverSolutionCallback):
    """Records the cost of every solution and reports it."""

    def __init__(self, unit: float, read: Callable[[Any], Any]) -> None:
        super().__init__()
        self.unit, self.read = unit, read

    def on_solution_callback(self) -> None:
        """Called by the solver."""
        if record_cost(self.objective_value * self.unit):
            report_incumbent((self.read(self), self.best_objective_bound, False))
        if is_cancelled():
            self.stop_search()
