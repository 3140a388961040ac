"""Runs a benchmark: every method on every instance without a stored result."""

from __future__ import annotations

import os
import statistics
import sys

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from rl4co.core.errors import ConfigError
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.benchmark.instances import Entry, InstanceSet, load_set
from rl4co.tasks.benchmark.report import Cells, Report, make_report
from rl4co.tasks.benchmark.runners import Runner, SolverRunner, make_runners
from rl4co.tasks.benchmark.spec import BenchmarkSpec
from rl4co.tasks.benchmark.store import Result, ResultStore, open_store


def run_benchmark(
    spec: BenchmarkSpec,
    folder: str | os.PathLike[str],
    *,
    num_procs: int = 1,
    retry_errors: bool = False,
    allow_classes: Sequence[str | type] = (),
    progress: bool | None = None,
) -> Report:
    """Solves what is not stored in the folder yet, and reports on everything.

    Each result is written to disk as soon as it is available, so an interrupted or killed run
    continues from there. Results belong to the settings of a method and the content of an instance;
    after a change of either they are computed anew, and the old ones stay in the file.

    Args:
        spec: Methods and instances.
        folder: Where results are stored.
        num_procs: Instances that classical solvers solve at the same time. Times mean little if
            there are fewer cores.
        retry_errors: Whether to try again what failed in an earlier run.
        allow_classes: See :func:`~rl4co.tasks.load.load_policy`.
        progress: Whether to show a progress bar; None: if stderr is a terminal.
    """
    if num_procs < 1:
        raise ConfigError(f"expected num_procs of at least 1, got {num_procs}")
    sets = [load_set(source) for source in spec.instances]
    with WorkerPool() as pool, open_store(folder) as store:
        # All of them first: a wrong option is found before hours of work.
        runners = [
            each
            for method in spec.methods
            for each in make_runners(method, spec, pool, Path(folder), allow_classes)
        ]
        pairs = [(runner, instances) for runner in runners for instances in sets]
        run_pairs(pairs, store, num_procs, retry_errors, progress)
        return make_report(spec, sets, _by_cell(runners, sets, store))


Plan = Sequence[tuple[Runner, list[Entry]]]


def run_pairs(
    pairs: Sequence[tuple[Runner, InstanceSet]],
    store: ResultStore,
    num_procs: int = 1,
    retry_errors: bool = False,
    progress: bool | None = None,
) -> None:
    """Runs methods on sets of instances, batch by batch, as far as results are missing.

    Args:
        pairs: Methods and the sets that they solve.
        store: Where results are read and written.
        num_procs: Instances that classical solvers solve at the same time.
        retry_errors: Whether to try again what failed in an earlier run.
        progress: Whether to show a progress bar; None: if stderr is a terminal.
    """
    plan = [
        (runner, batch)
        for runner, instances in pairs
        for batch in instances.batches(runner.batch_size)
        if _is_open(store, [runner.key(entry) for entry in batch], retry_errors)
    ]
    with _Progress(plan, num_procs, progress) as bar:
        for runner, results in _work(plan, num_procs):
            store.add(results, runner.facts())
            bar.advance(runner, results)


def _is_open(store: ResultStore, keys: Sequence[str], retry_errors: bool) -> bool:
    results = store.find(keys)
    return results is None or (retry_errors and any(each.error is not None for each in results))


def _work(plan: Plan, num_procs: int) -> Iterator[tuple[Runner, list[Result]]]:
    """Results batch by batch, as they are finished."""
    sequential = [job for job in plan if num_procs == 1 or not job[0].parallel]
    for runner, batch in sequential:
        runner.prepare()
        yield runner, runner.run(batch)
    concurrent = [job for job in plan if num_procs > 1 and job[0].parallel]
    threads = ThreadPoolExecutor(num_procs)
    try:
        pending = {threads.submit(runner.run, batch): runner for runner, batch in concurrent}
        for future in as_completed(pending):
            yield pending[future], future.result()
    finally:
        # After an interrupt, the pool ends its workers; their results are not awaited.
        threads.shutdown(wait=False, cancel_futures=True)


def _by_cell(runners: Sequence[Runner], sets: Sequence[InstanceSet], store: ResultStore) -> Cells:
    """Results with their seeds, by the names of method, set and instance."""
    cells = defaultdict[tuple[str, str, str], list[tuple[int | None, Result]]](list)
    for runner in runners:
        for instances in sets:
            for entry, result in find_results(runner, instances, store):
                cells[runner.name, instances.name, entry.name].append((runner.seed, result))
    return cells


def find_results(
    runner: Runner, instances: InstanceSet, store: ResultStore
) -> Iterator[tuple[Entry, Result]]:
    """The stored results of a method on a set; instances without one are left out."""
    for batch in instances.batches(runner.batch_size):
        results = store.find([runner.key(entry) for entry in batch])
        yield from zip(batch, results or (), strict=results is not None)


class _Progress:
    """A progress bar whose remaining time accounts for the speed of each method.

    Args:
        plan: The work.
        num_procs: Number of solver processes.
        progress: Whether to show the bar; None: if stderr is a terminal.
    """

    def __init__(self, plan: Plan, num_procs: int, progress: bool | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        from rl4co.core.console import Console

        self.open = defaultdict[Runner, int](int)
        for runner, batch in plan:
            self.open[runner] += len(batch)
        self.num_procs = num_procs
        self.seconds = defaultdict[Runner, list[float]](list)
        show = sys.stderr.isatty() if progress is None else progress
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            disable=not show or not plan,
        )
        self.task = self.bar.add_task(
            "benchmark", total=sum(self.open.values()), left=self._time_left()
        )

    def advance(self, runner: Runner, results: Sequence[Result]) -> None:
        """Updates the bar with finished work."""
        self.open[runner] -= len(results)
        self.seconds[runner] += [r.seconds for r in results if r.seconds is not None]
        self.bar.update(
            self.task, advance=len(results), description=runner.name, left=self._time_left()
        )

    def _time_left(self) -> str:
        """Open instances of each method times what one took so far, or may take at most."""
        seconds, at_most = 0.0, ""
        for runner, count in self.open.items():
            each = 0.0
            if measured := self.seconds.get(runner):
                each = statistics.fmean(measured)
            elif count and isinstance(runner, SolverRunner):
                each, at_most = runner.time_limit, "up to "
            seconds += count * each / (self.num_procs if runner.parallel else 1)
        return f"{at_most}{timedelta(seconds=round(seconds))} left"

    def __enter__(self) -> _Progress:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()
