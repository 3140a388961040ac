"""Solves benchmark files and custom instances: file → solution in the units of the file.

    (outcome,) = solve_files(["A-n32-k5.vrp"], BySolver("pyvrp", max_runtime=5))
    outcome.value, outcome.gap, outcome.solution

A solution comes from a classical solver, from a trained model or from a file, and may be the start
of another search (`polish`). Models see the instance scaled as they were trained (unit square,
demands by the capacity); values always come from the solution, in the units of the instance. The
form of a solution, routes or a schedule, depends on the instance, see
:class:`~rl4co.data.formats.benchmark.Benchmark`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import time

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rl4co.core.errors import ConfigError, RL4COError, StoppedError
from rl4co.data.formats import Benchmark, find_instances, read_instance
from rl4co.data.formats.benchmark import differs
from rl4co.data.formats.write import require_writable
from rl4co.data.io import atomic_write
from rl4co.solvers._cancellation import CancelToken
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.approaches import (
    Answer,
    Approach,
    ByFile,
    ByImprovement,
    ByModel,
    ByNearestModel,
    BySearch,
    BySolver,
    environment_of,
)
from rl4co.tasks.infeasibility.explanation import accept, explained
from rl4co.tasks.limits import wait

if TYPE_CHECKING:
    from rl4co.tasks.trace import Trace

__all__ = [
    "PLOT_FORMATS",
    "Answer",
    "Approach",
    "ByFile",
    "ByImprovement",
    "ByModel",
    "ByNearestModel",
    "BySearch",
    "BySolver",
    "Failed",
    "Outcome",
    "Solved",
    "check_plot",
    "describe",
    "environment_of",
    "format_value",
    "list_files",
    "plot",
    "read_instance",
    "save_plot",
    "solve_file",
    "solve_files",
    "solve_instance",
]

#: Formats of plots.
PLOT_FORMATS = (".png", ".pdf", ".svg", ".jpg")
#: Least seconds of polishing.
LEAST_TIME = 0.1


# ---------------------------------------------------------------- results


@dataclasses.dataclass(frozen=True)
class Solved:
    """A valid solution of an instance.

    Attributes:
        file: Where the instance comes from.
        instance: What was solved.
        solution: Routes, or a schedule.
        solver: Names of the solvers or methods that found it, joined by " + ".
        seconds: How long that took, reading not included.
        start: The solution before polishing; None if it was not polished.
        bound: Lower bound that the solver has proven, if it proves any.
        interrupted: Whether the search was interrupted.
        cuts: What a time limit cut short, in sentences.
        trace: See :class:`~rl4co.tasks.approaches.Answer`.
    """

    file: Path
    instance: Benchmark
    solution: Any
    solver: str
    seconds: float
    start: Any = None
    bound: float | None = None
    interrupted: bool = False
    cuts: tuple[str, ...] = ()
    trace: Trace | None = None

    @functools.cached_property
    def value(self) -> float:
        """Cost in the units of the instance, prize of orienteering, or makespan."""
        return self.instance.objective(self.solution)

    @functools.cached_property
    def start_value(self) -> float | None:
        """The value before polishing."""
        return None if self.start is None else self.instance.objective(self.start)

    @property
    def gap(self) -> float | None:
        """How much worse the value is than the best-known one (0.01 is 1 %); None if unknown.

        A best-known value of 0, as a table may have it, has no gaps either.
        """
        best = self.instance.best_known
        return self.instance.gap(self.value) if best or best == self.value else None

    @property
    def lower_bound(self) -> float | None:
        """The best known lower bound: of the file or a table, or proven by the solver."""
        bounds = [b for b in (self.instance.lower_bound, self.bound) if b is not None]
        return max(bounds, default=None)

    @property
    def remarks(self) -> list[str]:
        """What was cut short, and what is suspicious about the result, in words."""
        instance, best, bound = self.instance, self.instance.best_known, self.instance.lower_bound
        remarks = [*self.cuts]
        if self.interrupted:
            remarks.append("interrupted; this is the best solution so far")
        if best is not None and self.gap is not None and self.gap < 0 and differs(self.value, best):
            remarks.append(
                f"the {instance.value_name} is better than the best-known one: a new best "
                "solution, unless that one is of another instance or by other rules (--rounding)"
            )
        if bound is not None and self.value < bound and differs(self.value, bound):
            remarks.append(
                f"the {instance.value_name} is below the lower bound {bound:.10g}, which is thus "
                "of another instance or by other rules (--rounding)"
            )
        return remarks

    @property
    def is_optimal(self) -> bool:
        """Whether the solution is known to be optimal, as its value meets a lower bound."""
        bound = self.lower_bound
        return bound is not None and not self.instance.maximize and self.value <= bound


@dataclasses.dataclass(frozen=True)
class Failed:
    """A file that could not be solved.

    Attributes:
        file: The file.
        error: Why.
    """

    file: Path
    error: RL4COError | OSError


Outcome: TypeAlias = Solved | Failed

# ---------------------------------------------------------------- solving


def solve_file(
    path: str | os.PathLike[str],
    approach: Approach | None = None,
    *,
    polish: BySolver | None = None,
    limit: float | None = None,
    stop: threading.Event | None = None,
    **reading: Any,
) -> Solved:
    """Solves one file.

    Args:
        path: Instance in any format of :func:`~rl4co.data.formats.read_instance`.
        approach: See :func:`solve_instance`.
        polish: See :func:`solve_instance`.
        limit: See :func:`solve_instance`.
        stop: See :func:`solve_instance`.
        reading: Arguments of `read_instance`: `best_known`, `solution`, `column`, `rounding`,
            `vehicles`.
    """
    instance = read_instance(path, **reading)
    solved = solve_instance(instance, approach, polish=polish, limit=limit, stop=stop)
    return dataclasses.replace(solved, file=Path(path))


def solve_instance(
    instance: Benchmark,
    approach: Approach | None = None,
    *,
    polish: BySolver | None = None,
    limit: float | None = None,
    stop: threading.Event | None = None,
    on_cost: Callable[[float], object] = lambda cost: None,
    on_incumbent: Callable[[Callable[[], Answer]], object] = lambda incumbent: None,
) -> Solved:
    """Solves one instance.

    Args:
        instance: The instance.
        approach: How; None: by the best solver for the problem.
        polish: Solver that improves the solution; the result is not worse.
        limit: Seconds after which the best solution so far counts, polishing included; None: only
            the limits of the approach.
        stop: Event that ends the search with the best solution so far.
        on_cost: Called with the cost of each improved solution as soon as a solver finds it.
        on_incumbent: Called with a function that returns the best answer so far, whenever there is
            a better one. Not all solvers report the solutions of all costs.
    """
    if instance.stated_best_known is None:
        _ = instance.best_solution  # checked now rather than after the search
    started = time.perf_counter()
    token, chosen, start = CancelToken(stop, on_cost, on_incumbent), approach or BySolver(), None
    first_limit = limit if limit is None or polish is None else limit - polish.max_runtime
    valid = functools.partial(accept, instance)
    with token.active(), explained(instance, limit):
        answer = wait(lambda: chosen(instance), token, first_limit, valid)
    if polish is not None and not token.stop.is_set():
        left = limit and max(limit - (time.perf_counter() - started), LEAST_TIME)
        start = answer.solution
        answer = _polished(instance, answer, polish, token, left, valid)
    seconds = time.perf_counter() - started
    return Solved(
        instance.source or Path(instance.name),
        instance,
        answer.solution,
        answer.solver,
        seconds,
        start,
        answer.bound,
        token.stop.is_set(),
        tuple(token.cuts),
        answer.trace,
    )


def _polished(
    instance: Benchmark,
    first: Answer,
    polish: BySolver,
    token: CancelToken,
    limit: float | None,
    valid: Callable[[Answer], Answer],
) -> Answer:
    """The answer after polishing; `limit` is the remaining time."""
    if limit is not None:
        polish = dataclasses.replace(polish, max_runtime=min(polish.max_runtime, limit))
    token.incumbent = None
    better = wait(lambda: polish(instance, first.solution), token, limit, valid)
    return better._replace(solver=f"{first.solver} + {better.solver}")


def solve_files(
    paths: Iterable[str | os.PathLike[str]],
    approach: Approach | None = None,
    *,
    polish: BySolver | None = None,
    then: Callable[[Solved], object] | None = None,
    num_procs: int = 1,
    progress: bool = False,
    limit: float | None = None,
    stop: threading.Event | None = None,
    **reading: Any,
) -> list[Outcome]:
    """Solves files, and all instances in folders; a file that fails does not affect the others.

    Args:
        paths: Files and folders.
        approach: See :func:`solve_file`.
        polish: See :func:`solve_file`.
        then: Called with each solution as soon as it is found, for instance to write it; if it
            raises, the file has failed.
        num_procs: Files worked on at the same time. A model solves one at a time.
        progress: Whether to show a progress bar.
        limit: See :func:`solve_file`; it is for each file.
        stop: See :func:`solve_file`; files that were not started have failed.
        reading: See :func:`solve_file`.

    Returns:
        One outcome for each file, in their order.
    """
    if num_procs < 1:
        raise ConfigError(f"expected num_procs of at least 1, got {num_procs}")

    def attempt(file: Path, pool: WorkerPool) -> Outcome:
        with pool.running():
            try:
                if stop is not None and stop.is_set():
                    raise StoppedError(f"expected to solve {file}, got an interrupt before")
                solved = solve_file(
                    file, approach, polish=polish, limit=limit, stop=stop, **reading
                )
                if then is not None:
                    then(solved)
                return solved
            except (RL4COError, OSError) as error:
                return Failed(file, error)

    return _map_files(attempt, list_files(paths), num_procs, progress)


def list_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files, and the instances in folders."""
    files: list[Path] = []
    for path in map(Path, paths):
        instances = find_instances(path) if path.is_dir() else [path]
        if not instances:
            raise FileNotFoundError(
                f"expected instances in the folder {path}, got none; name the files"
            )
        files += instances
    return files


def _map_files(
    attempt: Callable[[Path, WorkerPool], Outcome],
    files: Sequence[Path],
    num_procs: int,
    progress: bool,
) -> list[Outcome]:
    """Outcomes in the order of the files."""
    from rich.progress import Progress

    from rl4co.core.console import Console

    with (
        WorkerPool() as pool,
        ThreadPoolExecutor(num_procs) as threads,
        Progress(console=Console(stderr=True), disable=not progress) as bar,
    ):
        task = bar.add_task("Solving", total=len(files))
        futures = [threads.submit(attempt, file, pool) for file in files]
        try:
            for _ in as_completed(futures):
                bar.advance(task)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


# ---------------------------------------------------------------- plots


def save_plot(solved: Solved, path: str | os.PathLike[str]) -> Path:
    """Plots a solution, with its value and gap as title.

    Args:
        solved: The solution.
        path: File to write, `.png`, `.pdf`, `.svg` or `.jpg`. Folders are created.
    """
    target = check_plot(path)
    figure = plot(solved.instance, solved.solution, describe(solved))
    with atomic_write(target) as file:
        figure.savefig(file, dpi=150, format=target.suffix[1:].lower())
    return target


def plot(instance: Benchmark, solution: Any, title: str) -> Any:
    """A figure of a solution.

    Args:
        instance: The instance.
        solution: A valid solution.
        title: Title of the figure.
    """
    env = environment_of(instance)
    state = env.reset(instance.to_tensordict(normalize=False))
    return env.render(state, instance.to_actions(solution), title=title)


def check_plot(path: str | os.PathLike[str]) -> Path:
    """Raises unless a plot can be written to a file."""
    target = Path(path)
    if target.suffix.lower() not in PLOT_FORMATS:
        raise ConfigError(
            f"expected a plot as {', '.join(PLOT_FORMATS)}, got {target.name!r}; change the suffix"
        )
    require_writable(target)
    return target


def describe(solved: Solved) -> str:
    """Name, value and gap in one line."""
    instance = solved.instance
    text = f"{instance.name} · {instance.value_name} {format_value(instance, solved.value)}"
    return text if solved.gap is None else f"{text} · gap {100 * solved.gap:.2f} %"


def format_value(instance: Benchmark, value: float) -> str:
    """A value with as many decimals as values of the instance have; three by default."""
    return f"{value:.0f}" if value == int(value) else f"{value:.{instance.decimals or 3}f}"
