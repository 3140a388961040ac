"""Runs families: lanes of work, shards of lanes, merged folders.

A lane is one training (with those that start from its weights) and everything that needs it, or
one solver on one set of instances. Lanes do not depend on each other, so shards never wait.
"""

from __future__ import annotations

import dataclasses
import io
import os
import shutil
import signal
import subprocess
import sys
import time

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rl4co.core.errors import ConfigError, RL4COError, WriteError
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.benchmark.recipes import (
    MODELS,
    TRAINING,
    key_of,
    read_training,
    train,
)
from rl4co.tasks.benchmark.run import run_pairs
from rl4co.tasks.benchmark.spec import (
    Method,
    Recipe,
    SolverMethod,
    Source,
    TrainedMethod,
)
from rl4co.tasks.benchmark.store import (
    FILE,
    FILES,
    BatchResult,
    ResultStore,
    as_line,
    open_store,
    read_lines,
)
from rl4co.tasks.reproduce.results import Results, Sets, collect, runner_of, unnamed
from rl4co.tasks.reproduce.table import Cell, Family

#: Minutes that a training without an estimate counts, for balancing shards.
_UNKNOWN_MINUTES = 10.0
#: Seconds that an instance counts for a solver without a time limit.
_HEURISTIC_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class Lane:
    """Work that belongs together.

    Attributes:
        name: What it is, for messages.
        key: Digest of its first training, or description of its solver; orders equal lanes.
        recipes: Trainings, in an order in which they can run.
        pairs: Methods and the sets of instances that they solve.
        minutes: Estimated minutes.
    """

    name: str
    key: str
    recipes: tuple[Recipe, ...]
    pairs: tuple[tuple[Method, Source], ...]
    minutes: float


@dataclasses.dataclass(frozen=True)
class Shard:
    """One of several parts of a run.

    Args:
        index: Which one, from 1 on.
        count: How many there are.
    """

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise ConfigError(
                f"expected a shard between 1/{self.count} and {self.count}/{self.count}, got "
                f"{self.index}/{self.count}"
            )

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The shard called `i/n`."""
        index, slash, count = text.partition("/")
        if not (slash and index.isdigit() and count.isdigit() and int(count)):
            raise ConfigError(f"expected a shard such as 1/4, got {text!r}")
        return cls(int(index), int(count))

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def file(self) -> str:
        """Name of its file of results."""
        part = f".{self.index}-of-{self.count}" if self.count > 1 else ""
        return f"{Path(FILE).stem}{part}{Path(FILE).suffix}"

    def split(self, jobs: int) -> list[Shard]:
        """The same part as several smaller ones."""
        first = (self.index - 1) * jobs
        return [Shard(first + job, self.count * jobs) for job in range(1, jobs + 1)]


# ---------------------------------------------------------------- plans


def make_lanes(cells: Iterable[Cell]) -> list[Lane]:
    """Lanes of cells and their references, the longest first."""
    groups: dict[str, list[tuple[Cell, Method, Source | None]]] = {}
    parents: dict[str, str] = {}
    for cell in cells:
        for method in cell.methods:
            keys = [_lane_key(method, cell.source)]
            if isinstance(method, TrainedMethod):
                keys = [key_of(recipe) for recipe in method.recipes]
            for key in keys[1:]:
                parents[_root(parents, key)] = _root(parents, keys[0])
            groups.setdefault(keys[0], []).append((cell, method, cell.source))
        if cell.reference is not None and cell.source is not None:
            key = _lane_key(cell.reference, cell.source)
            groups.setdefault(key, []).append((cell, cell.reference, cell.source))
    lanes: dict[str, list[tuple[Cell, Method, Source | None]]] = {}
    for key, members in groups.items():
        lanes.setdefault(_root(parents, key), []).extend(members)
    made = [_lane(key, members) for key, members in lanes.items()]
    return sorted(made, key=lambda lane: (-lane.minutes, lane.key))


def _root(parents: dict[str, str], key: str) -> str:
    while parents.get(key, key) != key:
        key = parents[key]
    return key


def _lane_key(method: Method, source: Source | None) -> str:
    return f"{unnamed(method)!r} on {'' if source is None else repr(unnamed(source))}"


def _lane(key: str, members: Sequence[tuple[Cell, Method, Source | None]]) -> Lane:
    recipes: dict[str, Recipe] = {}
    pairs: dict[str, tuple[Method, Source]] = {}
    minutes: dict[str, float] = {}
    for cell, method, source in members:
        if isinstance(method, TrainedMethod):
            recipes |= {key_of(recipe): recipe for recipe in method.recipes}
            for recipe in method.recipes:
                estimate = _UNKNOWN_MINUTES if cell.minutes is None else cell.minutes
                minutes.setdefault(key_of(recipe), estimate)
        elif source is not None:
            limit = method.time_limit if isinstance(method, SolverMethod) else None
            size = getattr(source, "size", None) or getattr(source, "limit", None) or 1
            seconds = limit if limit is not None else _HEURISTIC_SECONDS
            minutes[_lane_key(method, source)] = seconds * size / 60
        if source is not None:
            pairs.setdefault(_lane_key(method, source), (method, source))
    _, first, source = members[0]
    name = first.name
    if not isinstance(first, TrainedMethod) and source is not None:
        name = f"{first.name} on {source.name}"
    return Lane(name, key, tuple(recipes.values()), tuple(pairs.values()),
                sum(minutes.values()))  # fmt: skip


def deal(lanes: Iterable[Lane], shard: Shard) -> list[Lane]:
    """The lanes of a shard: the longest go first, each to the shard with the least work."""
    loads = [0.0] * shard.count
    chosen = []
    for lane in lanes:
        index = loads.index(min(loads))
        # Lanes without an estimated time still go around.
        loads[index] += lane.minutes + 1e-6
        if index == shard.index - 1:
            chosen.append(lane)
    return chosen


# ---------------------------------------------------------------- work


def run_lanes(
    lanes: Sequence[Lane],
    folder: Path,
    shard: Shard,
    procs: int = 1,
    retry_errors: bool = False,
    progress: bool | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Trains and solves what is not stored yet; a lane that fails does not stop the others.

    Args:
        lanes: The lanes of this shard.
        folder: Folder of results and trained policies.
        shard: The shard, which has a file of its own.
        procs: Instances that classical solvers solve at the same time.
        retry_errors: Whether to try again what failed in an earlier run.
        progress: Whether to show progress bars; None: if stderr is a terminal.
        report: Called with a line about each lane.

    Returns:
        Lanes that failed, with the reason.
    """
    sets, failures = Sets(), []
    with WorkerPool() as pool, open_store(folder, shard.file, compact=True) as store:
        for number, lane in enumerate(lanes, start=1):
            report(f"{number}/{len(lanes)} {lane.name}")
            try:
                pairs = [
                    (runner_of(method, pool, folder), sets[source]) for method, source in lane.pairs
                ]
                for recipe in lane.recipes if not pairs else ():
                    train(recipe, folder)
                run_pairs(pairs, store, procs, retry_errors, progress)
            except WriteError:  # a full disk concerns the other lanes as well
                raise
            except (RL4COError, FileNotFoundError) as error:
                failures.append(f"{lane.name}: {error}")
                report(failures[-1])
    return failures


def run_jobs(arguments: Sequence[str], shards: Sequence[Shard]) -> bool:
    """Runs `rl4co reproduce` for several shards at the same time; whether all succeeded.

    Args:
        arguments: Arguments of the command.
        shards: The shards, one for each process.
    """
    threads = str(max(1, (os.cpu_count() or 1) // len(shards)))
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, threads)}
    command = [sys.executable, "-m", "rl4co.cli", "reproduce", *arguments]
    processes = [
        # Without stdout there are no progress bars, which would overwrite each other.
        subprocess.Popen([*command, "--shard", str(each)], env=env, stdout=subprocess.DEVNULL)
        for each in shards
    ]
    try:
        codes = [process.wait() for process in processes]
    except BaseException:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait()
        raise
    return not any(codes)


def read_results(family: Family, cells: Sequence[Cell], folder: Path) -> Results:
    """The stored results of a family."""
    lines = [line for file in sorted(folder.glob(FILES)) for line in _lines(file)]
    return collect(family, cells, ResultStore(folder, io.BytesIO(), lines), folder, Sets())


def _lines(file: Path) -> list[BatchResult]:
    lines = read_lines(file, file.read_bytes())
    return [line for line in lines if isinstance(line, BatchResult)]


def calibrate(lanes: Iterable[Lane], folder: Path, steps: int) -> Iterator[tuple[str, float]]:
    """Seconds of processor time of a training step of each recipe, per thread.

    Processor time is what a step takes on an idle machine, whatever else runs now.

    Args:
        lanes: The lanes.
        folder: Folder of short trainings: one of so many steps, and one of twice as many.
        steps: Their steps.
    """
    threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    is_warm = False
    for lane in lanes:
        for recipe in lane.recipes:
            recipe = dataclasses.replace(recipe, epochs=1, start=None)  # a start changes no cost
            if not is_warm:  # the first training imports and compiles
                train(dataclasses.replace(recipe, steps=1), folder)
                is_warm = True
            seconds = []
            for count in (steps, 2 * steps):
                started = time.process_time()
                train(dataclasses.replace(recipe, steps=count), folder)
                seconds.append(time.process_time() - started)
            yield lane.name, (seconds[1] - seconds[0]) / steps / threads


# ---------------------------------------------------------------- merging


def merge(folder: Path, others: Sequence[Path]) -> list[str]:
    """Copies models and results that are missing from other folders.

    Args:
        folder: The folder to complete.
        others: Folders that are read.

    Returns:
        Conflicts: recipes that have other weights there, whose results are not copied.
    """
    for other in others:
        if not any(other.glob(FILES)):
            raise FileNotFoundError(f"expected a folder with {FILES}, got {other}")
    conflicts: list[str] = []
    with open_store(folder, f"{Path(FILE).stem}.merged{Path(FILE).suffix}") as store:
        known = {as_line(batch) for batches in store.batches.values() for batch in batches}
        for other in others:
            weights = _merge_models(folder, other, conflicts)
            for file in sorted(other.glob(FILES)):
                fitting = [
                    line
                    for line in _lines(file)
                    if weights.get(line.facts.get("recipe", ""), line.facts.get("weights"))
                    == line.facts.get("weights")
                ]
                store.append([line for line in fitting if as_line(line) not in known])
                known.update(map(as_line, fitting))
    return conflicts


def _merge_models(folder: Path, other: Path, conflicts: list[str]) -> dict[str, str]:
    """Copies missing policies; returns the digest of the weights of each recipe of the other."""
    weights = {}
    for training in sorted((other / MODELS).glob(f"*/{TRAINING}")):
        record, place = read_training(training.parent), folder / MODELS / training.parent.name
        if not (place / TRAINING).is_file():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(training.parent, place)
        weights[record["key"]] = read_training(place)["weights"]
        if weights[record["key"]] != record["weights"]:
            conflicts.append(
                f"{other}: recipe {training.parent.name} ({record['recipe']['experiment']}) has "
                f"other weights than in {folder}; its results were not copied"
            )
    return weights
