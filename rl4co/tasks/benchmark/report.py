"""Results of a benchmark against references, per instance and per method, as plain records.

The reference of an instance is its best-known value; where there is none, the value of the method
that the specification names; else the best value found. Tables say which it is.
"""

from __future__ import annotations

import dataclasses
import statistics

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rl4co.core.errors import ConfigError
from rl4co.tasks.benchmark.instances import Entry, InstanceSet
from rl4co.tasks.benchmark.spec import BenchmarkSpec, Method, PolicyMethod
from rl4co.tasks.benchmark.store import Result
from rl4co.tasks.load import find_device
from rl4co.tasks.metrics import (
    Incumbents,
    Summary,
    gap,
    normalize_runtime,
    primal_integral,
    summarize,
)

#: Kinds of references, apart from names of methods.
BEST_KNOWN, BEST_FOUND, NO_REFERENCE = "best known", "best found", "none"
#: Name of the lines over all sets.
ALL = "all"


@dataclasses.dataclass(frozen=True)
class Row:
    """One method on one instance, once.

    Attributes:
        set: Name of the set.
        instance: Name of the instance.
        problem: Name of its environment.
        size: Its number of nodes or operations.
        method: Name of the method.
        value: Value in the units of the instance; None if there is none.
        reference: Value to compare with.
        reference_kind: Where it is from: best known, best found, or the name of a method.
        gap: In percent.
        seconds: Time per instance.
        normalized_seconds: The same on the reference machine, if PassMark ratings were given.
        primal_integral: In percent.
        error: Why there is no value.
        incumbents: The trajectory of values.
        seed: Which of the specification's seeds the method had; None: none of them.
        vehicles: Number of routes, where a solution has several.
    """

    set: str
    instance: str
    problem: str
    size: int
    method: str
    value: float | None
    reference: float | None
    reference_kind: str
    gap: float | None
    seconds: float | None
    normalized_seconds: float | None
    primal_integral: float | None
    error: str | None
    incumbents: Incumbents
    seed: int | None = None
    vehicles: int | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """One method on a set of instances; averages are over the instances it solved.

    Attributes:
        set: Name of the set, or "all".
        method: Name of the method.
        solved: Runs that gave a solution: one for each instance and seed.
        total: Runs.
        value: Mean value; None for all sets together, whose units differ.
        gap: Gaps in percent.
        seconds: Times per instance.
        normalized_seconds: Mean time on the reference machine.
        primal_integral: Mean, in percent.
        references: Kinds of references and how many runs have them.
        seeds: With how many seeds the method solved every instance.
        value_spread: Standard deviation of the mean values of the seeds; None for one.
        gap_spread: The same of the mean gaps, in percent.
        vehicles: Mean number of routes, where solutions have several.
    """

    set: str
    method: str
    solved: int
    total: int
    value: float | None
    gap: Summary | None
    seconds: Summary | None
    normalized_seconds: float | None
    primal_integral: float | None
    references: str
    seeds: int = 1
    value_spread: float | None = None
    gap_spread: float | None = None
    vehicles: float | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """The contents of tables and plots.

    Attributes:
        name: Title.
        horizon: Time budget of primal integrals, in seconds.
        rows: Per instance.
        lines: Per method and set.
        notes: Remarks on references.
    """

    name: str
    horizon: float
    rows: tuple[Row, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order of the specification."""
        return list(dict.fromkeys(row.method for row in self.rows))

    @property
    def sets(self) -> list[str]:
        """Names of the sets of instances."""
        return list(dict.fromkeys(row.set for row in self.rows))

    @property
    def errors(self) -> list[Row]:
        """Rows of failed runs."""
        return [row for row in self.rows if row.error is not None]


#: Results and their seeds, by the names of method, set and instance.
Cells = Mapping[tuple[str, str, str], Sequence[tuple[int | None, Result]]]


def make_report(spec: BenchmarkSpec, sets: Sequence[InstanceSet], cells: Cells) -> Report:
    """Compares results with their references.

    Args:
        spec: The specification.
        sets: The instances.
        cells: Results and their seeds, by the names of method, set and instance.
    """
    rows: list[Row] = []
    notes: list[str] = []
    for instances in sets:
        for entry in instances.entries:
            runs = {m.name: cells[m.name, instances.name, entry.name] for m in spec.methods}
            results = {name: [result for _, result in of_name] for name, of_name in runs.items()}
            reference, kind = find_reference(entry, results, spec.reference)
            notes += _notes(entry, reference, kind, spec.reference)
            rows += [
                _row(spec, method, instances.name, entry, run, reference, kind)
                for method in spec.methods
                for run in runs[method.name]
            ]
    lines = make_lines([each.name for each in sets], [each.name for each in spec.methods], rows)
    return Report(spec.name, spec.horizon, tuple(rows), tuple(lines), tuple(notes))


def make_lines(sets: Sequence[str], methods: Sequence[str], rows: Sequence[Row]) -> list[Line]:
    """A line for each method on each set, and on all sets if there are several.

    Args:
        sets: Names of the sets.
        methods: Names of the methods.
        rows: Results per instance.
    """
    names = [*sets, *([ALL] if len(sets) > 1 else [])]
    return [_line(name, method, rows) for name in names for method in methods]


def find_reference(
    entry: Entry, results: Mapping[str, Sequence[Result]], reference: str | None
) -> tuple[float | None, str]:
    """The value that others are compared with, and where it is from.

    Args:
        entry: The instance.
        results: Results of all methods on it, one for each seed.
        reference: Method whose (best) value counts if there is no best-known one.
    """
    if entry.best_known is not None:
        return entry.best_known, BEST_KNOWN
    values = {
        name: [result.value for result in of_name if result.value is not None]
        for name, of_name in results.items()
    }
    best = max if entry.maximize else min
    if reference is not None and values[reference]:
        return best(values[reference]), reference
    solved = [value for of_name in values.values() for value in of_name]
    return (best(solved), BEST_FOUND) if solved else (None, NO_REFERENCE)


def _notes(entry: Entry, value: float | None, kind: str, reference: str | None) -> list[str]:
    notes = [] if entry.note is None else [entry.note]
    if reference is not None and kind == BEST_FOUND:
        notes.append(f"{entry.name}: no value of the reference {reference}, best found instead")
    if value == 0:
        notes.append(f"{entry.name}: the reference is 0, of which there are no gaps")
    return notes


def _row(
    spec: BenchmarkSpec,
    method: Method,
    set_name: str,
    entry: Entry,
    run: tuple[int | None, Result],
    reference: float | None,
    kind: str,
) -> Row:
    seed, result = run
    incumbents = Incumbents.of_points(result.incumbents, entry.maximize)
    gap_to_reference = integral = None
    if result.value is not None and reference is not None:
        try:
            gap_to_reference = gap(result.value, reference, entry.maximize)
            integral = primal_integral(incumbents, reference, spec.horizon, spec.initial_gap)
        except ConfigError:  # a reference of 0, see `_notes`
            gap_to_reference = None
    return Row(
        set=set_name,
        instance=entry.name,
        problem=entry.problem,
        size=entry.size,
        method=method.name,
        value=result.value,
        reference=reference,
        reference_kind=kind,
        gap=gap_to_reference,
        seconds=result.seconds,
        normalized_seconds=_normalized(spec, method, result.seconds),
        primal_integral=integral,
        error=result.error,
        incumbents=incumbents,
        seed=seed,
        vehicles=None if result.solution is None else entry.count_vehicles(result.solution),
    )


def _normalized(spec: BenchmarkSpec, method: Method, seconds: float | None) -> float | None:
    if spec.passmark is None or seconds is None:
        return None
    on_gpu = isinstance(method, PolicyMethod) and find_device(method.device) != "cpu"
    return normalize_runtime(seconds, spec.passmark.score(on_gpu), spec.passmark.reference)


def _line(set_name: str, method: str, rows: Iterable[Row]) -> Line:
    selected = [row for row in rows if row.method == method and set_name in (row.set, ALL)]
    solved = [row for row in selected if row.value is not None]
    kinds = Counter(row.reference_kind for row in selected if row.reference is not None)
    return Line(
        set=set_name,
        method=method,
        solved=len(solved),
        total=len(selected),
        value=None if set_name == ALL else _mean(row.value for row in solved),
        gap=summarize([row.gap for row in solved if row.gap is not None]),
        seconds=summarize([row.seconds for row in solved if row.seconds is not None]),
        normalized_seconds=_mean(row.normalized_seconds for row in solved),
        primal_integral=_mean(row.primal_integral for row in solved),
        references=", ".join(
            kind if len(kinds) == 1 else f"{kind} ({count})" for kind, count in kinds.items()
        )
        or NO_REFERENCE,
        seeds=len({row.seed for row in selected}),
        value_spread=None if set_name == ALL else _spread([(r.seed, r.value) for r in solved]),
        gap_spread=_spread([(row.seed, row.gap) for row in solved]),
        vehicles=_mean(row.vehicles for row in solved),
    )


def _spread(values: Iterable[tuple[int | None, float | None]]) -> float | None:
    """Standard deviation (of a sample) of the means of seeds; None of fewer than two."""
    of_seed: dict[int | None, list[float]] = {}
    for seed, value in values:
        if value is not None:
            of_seed.setdefault(seed, []).append(value)
    means = [statistics.fmean(each) for each in of_seed.values()]
    return statistics.stdev(means) if len(means) > 1 else None


def _mean(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.fmean(numbers) if numbers else None


def as_records(report: Report) -> dict[str, Any]:
    """The report in plain dictionaries and lists, for JSON."""
    rows = []
    for row in report.rows:
        record = dataclasses.asdict(row)
        record["incumbents"] = list(zip(row.incumbents.times, row.incumbents.values, strict=True))
        rows.append(record)
    return {
        "name": report.name,
        "horizon": report.horizon,
        "notes": list(report.notes),
        "lines": [dataclasses.asdict(line) for line in report.lines],
        "rows": rows,
    }
