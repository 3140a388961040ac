"""Solves benchmark files and people's own instances: file → solution in the file's own units.

    (outcome,) = solve_files(["A-n32-k5.vrp"], BySolver("pyvrp", max_runtime=5))
    outcome.value, outcome.gap, outcome.solution

A solution comes from a classical solver, from a trained model or from a file, and may be the start
of another search (`polish`). Models see the instance scaled as they were trained (unit square,
demands by the capacity); values always come from the solution, in the instance's own units. What a
solution looks like, routes or a schedule, is the instance's business, see
:class:`~rl4co.data.formats.published.Published`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import threading
import time

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tensordict import TensorDictBase
from torch import Tensor, nn

from rl4co.core.errors import ConfigError, RL4COError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.data.formats import Published, find_instances, read_instance
from rl4co.data.formats.write import require_writable
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._parallel import Crew
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.load import load_policy

#: Settings with which environments admit solutions that use up a limit of a published instance.
_SETTINGS: Mapping[str, Mapping[str, Any]] = {"op": {"length_margin": -1e-6}}

#: Formats of pictures.
PICTURES = (".png", ".pdf", ".svg", ".jpg")


# ---------------------------------------------------------------- results


@dataclasses.dataclass(frozen=True)
class Solved:
    """A valid solution of an instance.

    Attributes:
        file: Where the instance comes from.
        instance: What was solved.
        solution: Routes, or a schedule.
        solver: What found it: names of a solver or a method, joined by "+" where one went on.
        seconds: How long that took, reading not included.
        start: The solution before it was polished; None if it was not.
        bound: Lower bound that the solver has proven, if it proves any.
    """

    file: Path
    instance: Published
    solution: Any
    solver: str
    seconds: float
    start: Any = None
    bound: float | None = None

    @functools.cached_property
    def value(self) -> float:
        """Cost in the units of the instance, prize of orienteering, or makespan."""
        return self.instance.objective(self.solution)

    @functools.cached_property
    def start_value(self) -> float | None:
        """The value before it was polished."""
        return None if self.start is None else self.instance.objective(self.start)

    @property
    def gap(self) -> float | None:
        """How much worse the value is than the best-known one (0.01 is 1 %); None if unknown."""
        return None if self.instance.best_known is None else self.instance.gap(self.value)

    @property
    def lower_bound(self) -> float | None:
        """The best lower bound that is known: published, or proven by the solver."""
        known = [b for b in (self.instance.lower_bound, self.bound) if b is not None]
        return max(known, default=None)

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

# ---------------------------------------------------------------- ways to a solution


class Answer(NamedTuple):
    """What came of an instance.

    Attributes:
        solution: Routes, or a schedule.
        solver: Name of what found it.
        bound: Lower bound on the values of all solutions, if one was proven.
    """

    solution: Any
    solver: str
    bound: float | None = None


#: From an instance to a solution.
Approach: TypeAlias = Callable[[Published], Answer]


@dataclasses.dataclass(frozen=True)
class BySolver:
    """Solutions by a classical solver, from nothing or from another solution.

    Args:
        solver: Name; None: the best one for the problem (that can begin with a solution).
        max_runtime: Seconds per instance.
        seed: Seed of the solver; None: its own default.
    """

    solver: str | None = None
    max_runtime: float = 10.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not self.max_runtime > 0:
            raise ConfigError(f"expected a positive number of seconds, got {self.max_runtime:g}")
        if self.solver is not None:
            SOLVERS.location(self.solver)  # raises for names that do not exist

    def __call__(self, instance: Published, start: Any = None) -> Answer:
        """A solution that is not worse than `start`, and what the solver has proven."""
        exact = instance.to_tensordict(normalize=False)
        env = environment_of(instance)
        is_warm = start is not None
        chosen = SOLVERS[self.solver] if self.solver else env.default_solver(warm_start=is_warm)
        options: dict[str, Any] = {}
        if start is not None:
            options["initial"] = instance.to_actions(start)
        # What goes on from a solution may well be without chance, even if the start was not.
        if self.seed is not None and not (is_warm and "seed" not in chosen.options):
            options["seed"] = self.seed
        found = chosen(env, exact, max_runtime=self.max_runtime, **options)
        bound = None if found.bounds is None else float(found.bounds[0])
        return Answer(instance.from_actions(found.actions), chosen.name, bound)


@dataclasses.dataclass(frozen=True)
class ByModel:
    """Solutions by a trained policy.

    Args:
        policy: The policy.
        env: Environment that it was made for. An instance of a problem that this one includes will
            do: a CVRP for the MTVRP.
        method: How to decode, one of :data:`~rl4co.tasks.methods.METHODS`.
        options: Further arguments of :func:`~rl4co.tasks.evaluate.evaluate_policy`.
    """

    policy: nn.Module
    env: RL4COEnvBase
    method: str = "greedy"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        method: str = "greedy",
        device: str = "cpu",
        options: Mapping[str, Any] | None = None,
    ) -> ByModel:
        """The model of a checkpoint, or of a folder written by `save_pretrained`."""
        policy, env = load_policy(path, device)
        return cls(policy, env or _environment(policy.env_name), method, dict(options or {}))

    def __call__(self, instance: Published) -> Answer:
        """The best solution that the method decodes."""
        seen = instance.as_problem(self.env.name)
        td = seen.to_tensordict(normalize=True)
        with self._lock:  # one policy, however many files are worked on
            actions = self.decode(td)
        return Answer(seen.from_actions(actions), self.method)

    def decode(self, td: TensorDictBase) -> Tensor:
        """Actions `[B, T]` for instances as the policy sees them."""
        result = evaluate_policy(self.env, self.policy, td, self.method, **self.options)
        actions: Tensor = result["actions"]
        return actions


@dataclasses.dataclass(frozen=True)
class BySearch(ByModel):
    """Solutions by a policy that is adapted to the instance.

    Args:
        policy: See :class:`ByModel`.
        env: See :class:`ByModel`.
        method: How to adapt it, one of :data:`~rl4co.tasks.methods.SEARCHES`.
        options: Further arguments of :func:`~rl4co.tasks.search.search`.
    """

    method: str = "eas_lay"

    def decode(self, td: TensorDictBase) -> Tensor:
        """Actions `[B, T]` for instances as the policy sees them."""
        from rl4co.tasks.search import search  # with Lightning, which nothing else here needs

        return search(self.policy, self.env, td, self.method, **self.options).actions


@dataclasses.dataclass(frozen=True)
class ByFile:
    """A solution that is there already, to be polished or priced.

    Args:
        path: File in any format of solutions.
    """

    path: str | os.PathLike[str]

    def __call__(self, instance: Published) -> Answer:
        """The solution in the file, which has to be valid."""
        return Answer(instance.read_solution(self.path), Path(self.path).name)


def environment_of(instance: Published) -> RL4COEnvBase:
    """The environment of an instance."""
    return _environment(instance.problem)


@functools.cache
def _environment(problem: str) -> RL4COEnvBase:
    env: RL4COEnvBase = ENVS[problem](**_SETTINGS.get(problem, {}))
    return env


# ---------------------------------------------------------------- solving


def solve_file(
    path: str | os.PathLike[str],
    approach: Approach | None = None,
    *,
    polish: BySolver | None = None,
    **reading: Any,
) -> Solved:
    """Solves one file.

    Args:
        path: Instance in any format of :func:`~rl4co.data.formats.read_instance`.
        approach: How; None: by the best solver for the problem.
        polish: Solver that goes on from the solution; the result is not worse.
        reading: Arguments of `read_instance`: `best_known`, `solution`, `column`, `rounding`.
    """
    instance = read_instance(path, **reading)
    if instance.published is None:
        # Read now, and refused if it breaks a constraint, rather than when time has been spent.
        _ = instance.best_solution
    started = time.perf_counter()
    answer = (approach or BySolver())(instance)
    instance.check(answer.solution)
    start = None
    if polish is not None:
        start, better = answer.solution, polish(instance, answer.solution)
        instance.check(better.solution)
        answer = better._replace(solver=f"{answer.solver} + {better.solver}")
    seconds = time.perf_counter() - started
    return Solved(
        Path(path), instance, answer.solution, answer.solver, seconds, start, answer.bound
    )


def solve_files(
    paths: Iterable[str | os.PathLike[str]],
    approach: Approach | None = None,
    *,
    polish: BySolver | None = None,
    then: Callable[[Solved], object] | None = None,
    num_procs: int = 1,
    progress: bool = False,
    **reading: Any,
) -> list[Outcome]:
    """Solves files, and all instances in folders; one that fails does not keep others from it.

    Args:
        paths: Files and folders.
        approach: See :func:`solve_file`.
        polish: See :func:`solve_file`.
        then: Called with each solution as soon as it is found, for instance to write it; if that
            fails, the file has failed.
        num_procs: Files worked on at the same time. A model solves one at a time.
        progress: Whether to show a progress bar.
        reading: See :func:`solve_file`.

    Returns:
        One outcome for each file, in their order.
    """
    if num_procs < 1:
        raise ConfigError(f"expected num_procs of at least 1, got {num_procs}")

    def attempt(file: Path, crew: Crew) -> Outcome:
        with crew.at_work():
            try:
                solved = solve_file(file, approach, polish=polish, **reading)
                if then is not None:
                    then(solved)
                return solved
            except (RL4COError, OSError) as error:
                return Failed(file, error)

    return _map_files(attempt, list_files(paths), num_procs, progress)


def list_files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Files as they are, and the instances in folders."""
    files: list[Path] = []
    for path in map(Path, paths):
        found = find_instances(path) if path.is_dir() else [path]
        if not found:
            raise FileNotFoundError(
                f"expected instances in the folder {path}, got none; name the files"
            )
        files += found
    return files


def _map_files(
    attempt: Callable[[Path, Crew], Outcome], files: Sequence[Path], num_procs: int, progress: bool
) -> list[Outcome]:
    """Outcomes in the order of the files."""
    from rich.console import Console
    from rich.progress import Progress

    with (
        Crew() as crew,
        ThreadPoolExecutor(num_procs) as threads,
        Progress(console=Console(stderr=True), disable=not progress) as bar,
    ):
        task = bar.add_task("Solving", total=len(files))
        futures = [threads.submit(attempt, file, crew) for file in files]
        try:
            for _ in as_completed(futures):
                bar.advance(task)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


# ---------------------------------------------------------------- pictures


def save_picture(solved: Solved, path: str | os.PathLike[str]) -> Path:
    """Draws a solution, with its value and gap as title.

    Args:
        solved: The solution.
        path: File to write, `.png`, `.pdf`, `.svg` or `.jpg`. Folders are created.
    """
    target = check_picture(path)
    instance, env = solved.instance, environment_of(solved.instance)
    state = env.reset(instance.to_tensordict(normalize=False))
    figure = env.render(state, instance.to_actions(solved.solution), title=describe(solved))
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)
    return target


def check_picture(path: str | os.PathLike[str]) -> Path:
    """Raises unless a picture can be written to a file."""
    target = Path(path)
    if target.suffix.lower() not in PICTURES:
        raise ConfigError(
            f"expected a picture {', '.join(PICTURES)}, got {target.name!r}; change the suffix"
        )
    require_writable(target)
    return target


def describe(solved: Solved) -> str:
    """Name, value and gap in one line."""
    instance = solved.instance
    text = f"{instance.name} · {instance.value_name} {format_value(instance, solved.value)}"
    return text if solved.gap is None else f"{text} · gap {100 * solved.gap:.2f} %"


def format_value(instance: Published, value: float) -> str:
    """A value with the digits that values of the instance have, three if they have any number."""
    return f"{value:.0f}" if value == int(value) else f"{value:.{instance.decimals or 3}f}"
