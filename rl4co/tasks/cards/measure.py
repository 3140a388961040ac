"""Measures a card: gaps by size, distribution and decoding, times, a solver at the same time."""

from __future__ import annotations

import dataclasses
import math
import platform
import statistics

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rl4co import __version__
from rl4co.core.registry import ENVS
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.models.rl.saved_policies import load_policy
from rl4co.pretrained import ModelSource
from rl4co.tasks.benchmark import (
    BenchmarkSpec,
    FileSource,
    ModelMethod,
    Report,
    SolverMethod,
    run_benchmark,
)
from rl4co.tasks.benchmark.spec import Method, Source
from rl4co.tasks.cards.plan import (
    DISTRIBUTIONS,
    SIZES,
    CardSet,
    Decoding,
    card_sets,
    decodings,
    reference_seconds,
    reference_solver,
    training_set,
)
from rl4co.tasks.evaluate import as_instances, evaluate_policy

BATCH_SIZE = 64
#: Half the width of a 95 % interval in standard errors.
_INTERVAL = 1.96
#: Calls of which the latency is the median.
_CALLS = 20
#: Seconds after which no further call is timed.
_LATENCY_SECONDS = 20.0
#: Gap in percent above which a size or distribution is advised against.
_POOR = 10.0
#: A solver that takes less than so many times the time of a model takes the same time.
_SAME = 2
_REFERENCE = "reference"


@dataclasses.dataclass(frozen=True)
class CardOptions:
    """How much a card measures.

    Args:
        instances: Instances of each set.
        sizes: Sizes of instances.
        distributions: Distributions of locations.
        samples: Solutions of sampling.
        files: Sets of benchmark files: folders (perhaps with a table `bks.csv` of best-known
            values), or patterns.
        seconds_per_node: Time of reference solvers that do not stop themselves; None: default.
        cache: Folder of results, by problem, with which an interrupted card continues.
        num_procs: Instances that reference solvers solve at the same time.
        progress: Whether to show progress bars; None: if stderr is a terminal.
    """

    instances: int = 128
    sizes: Sequence[int] = SIZES
    distributions: Sequence[str] = DISTRIBUTIONS
    samples: int = 128
    files: Sequence[str] = ()
    seconds_per_node: float | None = None
    cache: Path = Path("cards")
    num_procs: int = 1
    progress: bool | None = None


def measure_card(source: ModelSource, options: CardOptions) -> dict[str, Any]:
    """The card of a model with its results.

    Args:
        source: The model; its files are compared with its index first.
        options: How much to measure.
    """
    source.verify()
    card = source.card()
    policy, _ = load_policy(source)
    sets = card_sets(card, options.instances, options.sizes, options.distributions)
    home = training_set(card, sets)
    env = ENVS[card["problem"]](generator_params=dict(home.source.params))
    used = policy.environment(None) if isinstance(policy, ImprovementPolicy) else env
    ways = decodings(policy, env, options.samples)
    solver = reference_solver(card["problem"])
    run = _Runs(source, ways, solver, options, card["problem"])
    results = [entry for size in _by_size(sets) for entry in run.gaps(size)]
    latency = [_latency(way, policy, used, as_instances(env, _CALLS)) for way in ways]
    results_home = [
        entry for entry in results if (entry["size"], entry["kind"]) == (home.size, home.kind)
    ]
    for entry, same in zip(latency, results_home, strict=True):
        entry["batch_64"] = same["seconds"]
    same_time = run.same_time(home, latency, results_home)
    return {
        **card,
        "rl4co": __version__,
        "machine": {"processor": _processor(), "threads": torch.get_num_threads()},
        "reference": solver,
        "instances": options.instances,
        "trained_on": {"size": home.size, "kind": home.kind},
        "results": results,
        "latency": latency,
        "same_time": same_time,
        "files": [entry for files in options.files for entry in run.files(files)],
        "do_not_use_for": _advice(results, same_time, solver),
    }


class _Runs:
    """Benchmarks of one model; their results are stored for the next run."""

    def __init__(
        self,
        source: ModelSource,
        ways: Sequence[Decoding],
        solver: str,
        options: CardOptions,
        problem: str,
    ) -> None:
        self.ways, self.solver, self.options = ways, solver, options
        self.folder = options.cache / problem
        self.models = tuple(
            ModelMethod(
                way.label, way.method, BATCH_SIZE, device="cpu", options=way.options,
                model=str(source.path),
            )
            for way in ways
        )  # fmt: skip

    def gaps(self, sets: Sequence[CardSet]) -> Iterator[dict[str, Any]]:
        """Gaps of each way to decode on each of some sets of one size."""
        report = self._run((self._reference(sets[0]), *self.models), [s.source for s in sets])
        for each in sets:
            for way in self.ways:
                entry = _summary(report, each.source.name, way.label)
                yield {"size": each.size, "kind": each.kind, "decoding": way.label, **entry}

    def same_time(
        self,
        home: CardSet,
        latency: Sequence[Mapping[str, Any]],
        results: Sequence[Mapping[str, Any]],
    ) -> list[dict[str, Any]]:
        """Gaps of the reference solver in the time in which the model solves one instance."""
        rivals = tuple(
            SolverMethod(self.solver, entry["decoding"], max(0.001, round(entry["batch_1"], 3)))
            for entry in latency
        )
        report = self._run((self._reference(home), *rivals), [home.source])
        return [
            {
                "decoding": rival.name,
                "seconds": rival.time_limit,
                "model": result["gap"],
                "solver": _summary(report, home.source.name, rival.name),
            }
            for rival, result in zip(rivals, results, strict=True)
        ]

    def files(self, files: str) -> Iterator[dict[str, Any]]:
        """Gaps on benchmark files to their best-known values: those in `bks.csv` of the folder."""
        table = Path(files, "bks.csv")
        best_known = str(table) if table.is_file() else None
        source = FileSource((files,), name=files, best_known=best_known)
        report = self._run(self.models, [source])
        name = Path(files.rstrip("/*")).name if "*" not in Path(files).name else Path(files).name
        for way in self.ways:
            yield {"files": name, "decoding": way.label, **_summary(report, files, way.label)}

    def _reference(self, each: CardSet) -> SolverMethod:
        seconds = reference_seconds(self.solver, each.num_nodes, self.options.seconds_per_node)
        return SolverMethod(self.solver, _REFERENCE, seconds)

    def _run(self, methods: tuple[Method, ...], sources: Sequence[Source]) -> Report:
        names = [method.name for method in methods]
        spec = BenchmarkSpec(
            methods, tuple(sources), reference=_REFERENCE if _REFERENCE in names else None
        )
        return run_benchmark(
            spec, self.folder, num_procs=self.options.num_procs, progress=self.options.progress
        )


def _summary(report: Report, set_name: str, method: str) -> dict[str, Any]:
    """Mean gap with its 95 % interval, mean value and time; None where nothing was solved."""
    rows = [row for row in report.rows if (row.set, row.method) == (set_name, method)]
    gaps = [row.gap for row in rows if row.gap is not None]
    values = [row.value for row in rows if row.value is not None]
    seconds = [row.seconds for row in rows if row.seconds is not None]
    error = math.nan
    if len(gaps) > 1:
        error = _INTERVAL * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return {
        "gap": _mean(gaps),
        "interval": None if math.isnan(error) else error,
        "value": _mean(values),
        "seconds": _mean(seconds),
        "solved": len(values),
        "total": len(rows),
    }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _by_size(sets: Sequence[CardSet]) -> list[list[CardSet]]:
    sizes: dict[int | str, list[CardSet]] = {}
    for each in sets:
        sizes.setdefault(each.size, []).append(each)
    return list(sizes.values())


def _latency(way: Decoding, policy: Any, env: Any, instances: Any) -> dict[str, Any]:
    """Median time of one instance at a time, after a first call that does not count.

    Fewer instances are timed if they take long.
    """
    times: list[float] = []
    for index in (0, *range(len(instances))):
        one = instances[index : index + 1]
        out = evaluate_policy(env, policy, one, way.method, batch_size=1, **way.options)
        times.append(out["inference_time"])
        if sum(times) > _LATENCY_SECONDS and len(times) > 1:
            break
    return {"decoding": way.label, "batch_1": statistics.median(times[1:])}


def _advice(
    results: Sequence[Mapping[str, Any]], same_time: Sequence[Mapping[str, Any]], solver: str
) -> list[str]:
    """What the results advise against: where a solver wins, or even the best decoding is poor."""
    best: dict[tuple[Any, str], float] = {}
    for entry in results:
        key = (entry["size"], entry["kind"])
        gap = math.inf if entry["gap"] is None else entry["gap"]
        best[key] = min(gap, best.get(key, math.inf))
    poor = [
        f"{' '.join(filter(None, [f'size {size}', kind]))}: "
        + ("fails" if math.isinf(gap) else f"{gap:.1f} % worse than {solver} at best")
        for (size, kind), gap in best.items()
        if gap > _POOR
    ]
    beaten = [
        entry["decoding"]
        for entry in same_time
        if None not in (theirs := entry["solver"]["gap"], ours := entry["model"])
        and theirs < ours
        and entry["solver"]["seconds"] < _SAME * entry["seconds"]
    ]
    single = f"single instances ({', '.join(beaten)}): {solver} is better in the same time"
    return [
        *([single] if beaten else []),
        "constraints and costs that the problem does not have: the policy does not see them",
        *poor,
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
