"""Stored results of a family as arrays: values, gaps and times of each cell."""

from __future__ import annotations

import dataclasses
import warnings

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from numpy.typing import NDArray

from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.benchmark.instances import InstanceSet, load_set
from rl4co.tasks.benchmark.recipes import folder_of, is_trained, read_training
from rl4co.tasks.benchmark.run import find_results
from rl4co.tasks.benchmark.runners import LATENCY, Runner, make_runner
from rl4co.tasks.benchmark.spec import (
    DEFAULT_TIME_LIMIT,
    Method,
    SolverMethod,
    Source,
    TrainedMethod,
)
from rl4co.tasks.benchmark.store import Result, ResultStore
from rl4co.tasks.metrics import Incumbents, primal_integral
from rl4co.tasks.reproduce.table import Cell, Family

#: Numbers by seed and instance `[S, n]`; NaN where there is none.
Numbers: TypeAlias = NDArray[np.float64]

#: Metric → its name in tables, and digits after the point.
METRICS: Mapping[str, tuple[str, int]] = {
    "cost": ("cost", 3),
    "gap": ("gap (%)", 2),
    "gap_of_means": ("gap of means (%)", 2),
    "worst": ("worst gap (%)", 2),
    "pi": ("primal integral (%)", 2),
    "time": ("time (s)", 4),
    "latency": ("one instance, one core (s)", 4),
    "solver": ("solver at equal time (%)", 2),
    "solved": ("solved (%)", 0),
    "steps": ("steps", 0),
    "minutes": ("training (min)", 1),
    "seconds": ("training (s)", 1),
}
_PERCENT = 100.0
#: Instances in a line of a solver's results.
_SOLVER_BATCH = 16


@dataclasses.dataclass(frozen=True)
class Measured:
    """Results of a cell.

    Attributes:
        cell: The cell.
        values: Values in the units of the instances.
        references: Values that they are compared with `[n]`.
        seconds: Times per instance.
        integrals: Primal integrals in percent.
        trainings: Records of the trainings that are complete, one for each seed.
        errors: Reasons of failures, and how often each occurred.
        maximize: Whether more is better.
        points: Trajectories of times and values, by seed and instance.
        latency: Seconds of a single instance on one core.
        reference_points: Trajectories of the reference, by instance.
    """

    cell: Cell
    values: Numbers
    references: Numbers
    seconds: Numbers
    integrals: Numbers
    trainings: Sequence[Mapping[str, Any]]
    errors: Mapping[str, int]
    maximize: bool
    points: Sequence[Sequence[Sequence[tuple[float, float]]]]
    latency: float | None = None
    reference_points: Sequence[Sequence[tuple[float, float]]] = ()

    @property
    def axes(self) -> Mapping[str, str]:
        """Option of each axis."""
        return self.cell.axes

    @property
    def is_complete(self) -> bool:
        """Whether every instance was tried with every seed."""
        tried = int((~np.isnan(self.values)).sum()) + sum(self.errors.values())
        return self.values.size > 0 and tried >= self.values.size

    @property
    def gaps(self) -> Numbers:
        """Gaps in percent."""
        excess = self.values - self.references
        return _PERCENT * (-excess if self.maximize else excess) / np.abs(self.references)

    def per_instance(self, metric: str) -> Numbers:
        """A metric by seed and instance, of which tables show means."""
        if metric in ("seconds", "minutes"):
            scale = 60.0 if metric == "minutes" else 1.0
            return np.array([[record["seconds"] / scale] for record in self.trainings])
        arrays = {"cost": self.values, "gap": self.gaps, "time": self.seconds, "pi": self.integrals}
        return arrays[metric]

    def mean(self, metric: str) -> float | None:
        """A metric of :data:`METRICS` over all seeds and instances; None: there is none."""
        if metric == "solved":
            return _PERCENT * float((~np.isnan(self.values)).mean()) if self.values.size else None
        if metric == "steps":
            return None if self.cell.steps is None else float(self.cell.steps)
        if metric in ("minutes", "seconds"):
            times = self.per_instance(metric)
            return float(times.mean()) if times.size else None
        if metric == "latency":
            return self.latency
        if np.isnan(self.values).all():
            return None
        if metric == "solver":
            return self._gap_of_reference()
        if metric == "worst":
            number = float(np.nanmax(self.gaps)) if not np.isnan(self.gaps).all() else None
            return number
        if metric == "gap_of_means":
            ratio = float(np.nanmean(self.values) / np.nanmean(self.references)) - 1
            return _PERCENT * (-ratio if self.maximize else ratio)
        array = self.per_instance(metric)
        return None if np.isnan(array).all() else float(np.nanmean(array))

    def _gap_of_reference(self) -> float | None:
        """Mean gap of what the reference had found in the time of a single instance."""
        if self.latency is None or len(self.reference_points) < len(self.references):
            return None
        in_time = [[v for t, v in each if t <= self.latency] for each in self.reference_points]
        if not all(in_time):
            return None  # on some instances it had no solution yet
        values = np.array([each[-1] for each in in_time])
        gaps = (values - self.references) / np.abs(self.references)
        return _PERCENT * float((-gaps if self.maximize else gaps).mean())

    def half_width(self, metric: str) -> float | None:
        """Half of the 95 % interval of the mean: over seeds if there are three, else instances."""
        if metric not in ("cost", "gap", "pi"):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # rows without a value
            numbers = np.nanmean(self.per_instance(metric), 1 if len(self.values) >= 3 else 0)
        numbers = numbers[~np.isnan(numbers)]
        if len(numbers) < 2:
            return None
        from scipy.stats import t

        factor = float(t.ppf(0.975, len(numbers) - 1))
        return factor * float(numbers.std(ddof=1)) / len(numbers) ** 0.5


@dataclasses.dataclass(frozen=True)
class Results:
    """Results of a family.

    Attributes:
        family: The family.
        measured: Results of each cell, in the order of the axes.
        notes: Remarks for the reader.
        machines: Versions and machines that made the results.
    """

    family: Family
    measured: Sequence[Measured]
    notes: Sequence[str]
    machines: Sequence[str] = ()

    @property
    def done(self) -> int:
        """Number of complete cells."""
        return sum(each.is_complete for each in self.measured)

    def select(self, where: Mapping[str, Any]) -> list[Measured]:
        """Results of the cells that a selection fits."""
        return [each for each in self.measured if each.cell.fits(where)]


def unnamed(item: Any) -> Any:
    """A method or a set without its name, which does not change results."""
    return dataclasses.replace(item, name="")


def runner_of(method: Method, pool: WorkerPool, root: Path) -> Runner:
    """The runner of a method; solvers store a line for several instances."""
    return make_runner(method, DEFAULT_TIME_LIMIT, pool, root, solver_batch=_SOLVER_BATCH)


class Sets:
    """Sets of instances, each loaded once."""

    def __init__(self) -> None:
        self._sets: dict[str, InstanceSet] = {}

    def __getitem__(self, source: Source) -> InstanceSet:
        key = repr(unnamed(source))
        if key not in self._sets:
            self._sets[key] = load_set(source)
        return self._sets[key]


def collect(
    family: Family, cells: Iterable[Cell], store: ResultStore, root: Path, sets: Sets
) -> Results:
    """The results of cells as far as they are stored.

    Args:
        family: The family.
        cells: Its cells.
        store: The store.
        root: Folder of the trained policies.
        sets: Sets of instances.
    """
    notes = store.settle_weights()
    with WorkerPool() as pool:
        tables = [_table(cell, store, root, sets, pool) for cell in cells if cell.source]
    best: dict[str, Numbers] = {}
    for table in tables:
        for rows in (table.values, table.reference_values):
            low = np.nanmin(rows, 0, initial=np.inf, where=~np.isnan(rows))
            best[table.key] = np.fmin(best.get(table.key, low), low)
    measured = []
    for table in tables:
        known = np.where(np.isnan(table.known), table.reference_values[0], table.known)
        known = np.where(np.isnan(known), best[table.key], known)
        known = np.where(np.isfinite(known), known, np.nan)
        better = (table.values < known * (1 - np.sign(known) * 1e-6)).any(0)
        if better.any():
            notes.append(f"{_label(table.cell)}: {int(better.sum())} of {len(known)} values are "
                         "better than the reference")  # fmt: skip
        sign = -1.0 if table.maximize else 1.0
        measured.append(
            Measured(
                cell=table.cell,
                values=sign * table.values,
                references=sign * known,
                seconds=table.seconds,
                integrals=_integrals(family, table, sign * known),
                trainings=[
                    read_training(folder_of(method.recipe, root))
                    for method in table.cell.methods
                    if isinstance(method, TrainedMethod) and is_trained(method.recipe, root)
                ],
                errors=table.errors,
                maximize=table.maximize,
                points=table.points,
                latency=table.latency,
                reference_points=table.reference_points,
            )
        )
    machines = {machine for table in tables for machine in table.machines}
    return Results(family, measured, notes, sorted(machines))


def _label(cell: Cell) -> str:
    return ", ".join(cell.axes.values())


@dataclasses.dataclass
class _Table:
    """Stored numbers of a cell; values are costs, negative where more is better."""

    cell: Cell
    key: str
    maximize: bool
    known: Numbers
    values: Numbers
    seconds: Numbers
    reference_values: Numbers
    points: list[list[tuple[tuple[float, float], ...]]]
    errors: dict[str, int]
    reference_points: list[tuple[tuple[float, float], ...]]
    latency: float | None
    machines: set[str]


def _table(cell: Cell, store: ResultStore, root: Path, sets: Sets, pool: WorkerPool) -> _Table:
    assert cell.source is not None
    instances = sets[cell.source]
    maximize = instances.entries[0].maximize
    sign = -1.0 if maximize else 1.0
    rows = [_row(method, instances, store, root, pool) for method in cell.methods]
    errors: dict[str, int] = {}
    for row in rows:
        for result in row:
            if result is not None and result.error is not None:
                reason = result.error.splitlines()[-1]
                errors[reason] = errors.get(reason, 0) + 1
    known = [entry.best_known for entry in instances.entries]
    reference: list[list[Result | None]] = [[None] * len(known)]
    if cell.reference is not None:
        reference = [_row(cell.reference, instances, store, root, pool)]
    facts = [
        store.facts([runner.key(entry) for entry in batch])
        for runner in (runner_of(method, pool, root) for method in cell.methods)
        for batch in instances.batches(runner.batch_size)
    ]
    seconds = _array(rows, "seconds")
    latencies = [float(each[LATENCY]) for each in facts if LATENCY in each]
    if isinstance(cell.methods[0], SolverMethod):  # solvers solve one instance at a time
        latencies = seconds[~np.isnan(seconds)].tolist()
    return _Table(
        reference_points=[each.incumbents for each in reference[0] if each is not None],
        latency=float(np.median(latencies)) if latencies else None,
        machines={
            f"rl4co {each['version']}, {each['machine']}" for each in facts if "machine" in each
        },
        cell=cell,
        key=repr(unnamed(cell.source)),
        maximize=maximize,
        known=sign * np.array([np.nan if value is None else value for value in known]),
        values=sign * _array(rows, "value"),
        seconds=seconds,
        reference_values=sign * _array(reference, "value"),
        points=[[() if each is None else each.incumbents for each in row] for row in rows],
        errors=errors,
    )


def _row(
    method: Method, instances: InstanceSet, store: ResultStore, root: Path, pool: WorkerPool
) -> list[Result | None]:
    runner = runner_of(method, pool, root)
    stored = {entry.name: result for entry, result in find_results(runner, instances, store)}
    return [stored.get(entry.name) for entry in instances.entries]


def _array(rows: Sequence[Sequence[Result | None]], field: str) -> Numbers:
    numbers = [[None if each is None else getattr(each, field) for each in row] for row in rows]
    return np.array([[np.nan if x is None else x for x in row] for row in numbers], dtype=float)


def _integrals(family: Family, table: _Table, references: Numbers) -> Numbers:
    """Primal integrals over the `horizon` of the profile, or the time limit of the reference."""
    integrals = np.full(table.values.shape, np.nan)
    horizon = family.variables.get("horizon")
    if horizon is None and isinstance(table.cell.reference, SolverMethod):
        horizon = table.cell.reference.time_limit
    if horizon is None:
        return integrals
    for seed, row in enumerate(table.points):
        for index, points in enumerate(row):
            if points and np.isfinite(references[index]):
                incumbents = Incumbents.of_points(points, table.maximize)
                integrals[seed, index] = primal_integral(incumbents, references[index], horizon)
    return integrals
