"""Runs methods: a runner solves instances with one method and reports value, time and errors.

Times are per instance. A classical solver's is that of its search, without starting a process; a
model's is that of decoding a batch, divided by the instances in it, after a first call that is not
measured. An error on an instance becomes its result, and the other instances go on.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import inspect
import json
import time

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tensordict import TensorDict
from torch import Tensor, nn

from rl4co import __version__
from rl4co.core.errors import UnknownNameError, UnsupportedError
from rl4co.core.registry import SOLVERS
from rl4co.core.rng import derive_seed
from rl4co.envs.base import RL4COEnvBase
from rl4co.models.policies.improvement import ImprovementPolicy
from rl4co.pretrained import CONFIG_FILE, WEIGHTS_FILE, find_model
from rl4co.solvers._worker_pool import WorkerPool
from rl4co.tasks.approaches import supported_limits
from rl4co.tasks.benchmark.instances import Entry, stack
from rl4co.tasks.benchmark.machine import machine_facts
from rl4co.tasks.benchmark.recipes import key_of, train, weights_digest
from rl4co.tasks.benchmark.spec import (
    BenchmarkSpec,
    Method,
    ModelMethod,
    PolicyMethod,
    SolverMethod,
    TrainedMethod,
)
from rl4co.tasks.benchmark.store import Result
from rl4co.tasks.evaluate import evaluate_policy
from rl4co.tasks.load import find_device, load_policy
from rl4co.tasks.methods import GLOP, IMPROVE
from rl4co.tasks.metrics import Incumbents, per_instance_time

#: Longest text of an error that is kept.
ERROR_LENGTH = 2000

#: Name of the time of a single instance among the facts of results.
LATENCY = "latency"
#: Seconds from which the first call of a policy is not repeated to measure it.
_LONG_CALL = 2.0

#: Arguments of solvers that are not options of a method.
_NO_OPTIONS = {"env", "td", "max_runtime", "num_procs", "progress", "initial"}


@functools.cache
def _machine() -> str:
    return str(machine_facts()["machine"])


class Runner(abc.ABC):
    """One method of a benchmark.

    Args:
        method: What the specification says.
        definition: What else belongs to its identity.
        without: Settings that do not.

    Attributes:
        name: Name of the method.
        seed: Which of the specification's seeds it has; None: none of them.
        batch_size: Instances to solve together.
        parallel: Whether it may be called from several threads.
    """

    batch_size = 1
    parallel = False
    seed: int | None = None

    def __init__(self, method: Method, *definition: str, without: Sequence[str] = ()) -> None:
        self.name = method.name
        values = dataclasses.asdict(method).items()
        settings = {key: value for key, value in values if key not in ("name", *without)}
        text = json.dumps([type(method).__name__, settings, definition], sort_keys=True)
        self._fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def key(self, entry: Entry) -> str:
        """Digest of this method on an instance."""
        return hashlib.sha256(f"{self._fingerprint}{entry.fingerprint}".encode()).hexdigest()

    def facts(self) -> dict[str, str]:
        """What produced the results, beside the method's settings."""
        return {"version": __version__, "machine": _machine()}

    def prepare(self) -> None:  # noqa: B027
        """Called before :meth:`run`; raises if the method cannot run at all."""

    @abc.abstractmethod
    def run(self, entries: Sequence[Entry]) -> list[Result]:
        """Solves some instances; never raises because of an instance or a method."""

    def _result(self, entry: Entry, points: Sequence[tuple[float, float]],
                seconds: float, solution: list[Any]) -> Result:  # fmt: skip
        incumbents = Incumbents.of_points(points, entry.maximize)
        return Result(
            key=self.key(entry),
            method=self.name,
            instance=entry.name,
            value=incumbents.best,
            seconds=seconds,
            incumbents=tuple(zip(incumbents.times, incumbents.values, strict=True)),
            solution=solution,
        )

    def _failure(self, entry: Entry, error: Exception) -> Result:
        text = f"{type(error).__name__}: {error}".strip()
        # The end of a traceback says what went wrong.
        text = text if len(text) <= ERROR_LENGTH else f"... {text[-ERROR_LENGTH:]}"
        return Result(self.key(entry), self.name, entry.name, error=text)


class SolverRunner(Runner):
    """Solves instances one by one with a classical solver.

    Args:
        method: What the specification says.
        time_limit: Seconds per instance.
        pool: Worker processes.
    """

    parallel = True

    def __init__(self, method: SolverMethod, time_limit: float, pool: WorkerPool) -> None:
        super().__init__(method, str(time_limit))
        self.method, self.time_limit, self.pool = method, time_limit, pool
        options = set(inspect.signature(SOLVERS[method.solver]).parameters) - _NO_OPTIONS
        for option in method.options:
            if option not in options:
                raise UnknownNameError(f"option of the solver {method.solver!r}", option, options)

    def run(self, entries: Sequence[Entry]) -> list[Result]:
        """See :class:`Runner`."""
        return [self._attempt(entry) for entry in entries]

    def _attempt(self, entry: Entry) -> Result:
        try:
            env, td = entry.for_solver()
            limits = supported_limits(entry.solver_options, SOLVERS[self.method.solver])
            with self.pool.running() as reports:
                started = time.perf_counter()
                actions, costs = env.solve(
                    td,
                    self.time_limit,
                    solver=self.method.solver,
                    **{**limits, **self.method.options},
                )
                seconds = time.perf_counter() - started
            value, solution = entry.evaluate(actions[0], entry.problem)
            cost, points = float(costs[0]), []
            if reports:  # the solver had a process of its own
                seconds = reports[0].seconds
                points = reports[0].incumbents
            points = [(t, _value_of(entry, c, cost, value)) for t, c in points if c >= cost]
            return self._result(entry, [*points, (seconds, value)], seconds, solution)
        except Exception as error:  # any: the other instances must go on
            return self._failure(entry, error)


def _value_of(entry: Entry, cost: float, last_cost: float, last_value: float) -> float:
    """Value of an earlier solution, from its cost in the solver's report and the last solution's.

    Solvers count in integers of their own, so values of instances with rounded costs are rounded
    to the digits that those have.
    """
    change = last_cost - cost if entry.maximize else cost - last_cost
    value = last_value + change
    return value if entry.decimals is None else round(value, entry.decimals)


class _Pass(NamedTuple):
    """Solutions of a batch.

    Attributes:
        seconds: Time per instance until they were there.
        actions: The solutions `[B, T]`.
        times: Times per instance of earlier ones `[P]`, where the method reports them.
        costs: Their costs `[P, B]`, the last ones being those of `actions`.
    """

    seconds: float
    actions: Tensor
    times: Sequence[float]
    costs: Tensor


class PolicyRunner(Runner):
    """Decodes a policy, batch by batch.

    Args:
        method: What the specification says.
        definition: What else belongs to its identity.
        allow_classes: See :func:`~rl4co.tasks.load.load_policy`.
        without: Settings that do not belong to its identity.
    """

    def __init__(
        self,
        method: PolicyMethod,
        *definition: str,
        allow_classes: Sequence[str | type] = (),
        without: Sequence[str] = (),
    ) -> None:
        super().__init__(method, *definition, without=without)  # type: ignore[arg-type]
        self.allow_classes = allow_classes
        self.method, self.batch_size = method, method.batch_size
        self._policy: nn.Module | None = None
        self._warm: set[str] = set()
        self._latency: float | None = None

    @abc.abstractmethod
    def source(self) -> Path:
        """The folder or checkpoint of the policy."""

    def options(self) -> Mapping[str, Any]:
        """Settings of decoding."""
        return self.method.options

    def run(self, entries: Sequence[Entry]) -> list[Result]:
        """See :class:`Runner`; a batch that fails is tried again one by one."""
        try:
            problem = self._problem(entries[0])
            solutions = self._decode(entries, problem)
        except Exception as error:  # any: the other instances must go on
            if len(entries) == 1:
                return [self._failure(entries[0], error)]
            return [result for entry in entries for result in self.run([entry])]
        return [
            self._result_of(entry, problem, row, solutions) for row, entry in enumerate(entries)
        ]

    def _result_of(
        self, entry: Entry, problem: str, row: int, solutions: Sequence[_Pass]
    ) -> Result:
        try:
            evaluated = [
                (each.seconds, *entry.evaluate(each.actions[row], problem)) for each in solutions
            ]
        except Exception as error:  # any: the other instances must go on
            return self._failure(entry, error)
        best = (max if entry.maximize else min)(evaluated, key=lambda each: each[1])
        points = [(at, value) for at, value, _ in evaluated]
        for each, (at, value, _) in zip(solutions, evaluated, strict=True):
            costs = each.costs[:, row].tolist()
            points += [
                (time, _value_of(entry, cost, costs[-1], value))
                for time, cost in zip(each.times, costs, strict=True)
                if time < at
            ]
        return self._result(entry, points, evaluated[-1][0], best[2])

    def _decode(self, entries: Sequence[Entry], problem: str) -> list[_Pass]:
        """The passes of the method on a batch."""
        policy = self._loaded()
        pairs = [entry.for_model(problem) for entry in entries]
        env, instances = pairs[0][0], stack([td for _, td in pairs])
        # Independent of the other batches, so that a resumed run gives the same results.
        seeds = [derive_seed(self.method.seed, number, entries[0].fingerprint)
                 for number in range(self.method.passes)]  # fmt: skip
        if problem not in self._warm:
            self._warm.add(problem)
            self._latency = self._measure_latency(policy, env, instances[:1], seeds[0])
        passes: list[_Pass] = []
        for seed in seeds:
            out = self._evaluate(policy, env, instances, seed)
            before = passes[-1].seconds if passes else 0.0
            elapsed = before + per_instance_time(out["inference_time"], len(entries))
            times = [before + float(time) / len(entries) for time in out.get("times", ())]
            costs = out.get("incumbents", out["rewards"].new_empty(0, len(entries)))
            passes.append(_Pass(elapsed, out["actions"], times, costs))
        return passes

    def _measure_latency(
        self, policy: nn.Module, env: RL4COEnvBase, instance: TensorDict, seed: int
    ) -> float:
        """Seconds of a single instance with one thread; the first call is not measured if short."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            seconds = self._evaluate(policy, env, instance, seed)["inference_time"]
            if seconds < _LONG_CALL:
                seconds = self._evaluate(policy, env, instance, seed)["inference_time"]
        finally:
            torch.set_num_threads(threads)
        return float(seconds)

    def facts(self) -> dict[str, str]:
        """With the time of a single instance on one core, which no batch shares."""
        latency = {} if self._latency is None else {LATENCY: f"{self._latency:.4g}"}
        return {**super().facts(), **latency}

    def _evaluate(
        self, policy: nn.Module, env: RL4COEnvBase, instances: TensorDict, seed: int
    ) -> dict[str, Any]:
        if isinstance(policy, ImprovementPolicy):
            env = policy.environment(None)
        return evaluate_policy(
            env,
            policy,
            instances,
            self.method.decode,
            batch_size=len(instances),
            seed=seed,
            **self.options(),
        )

    def _problem(self, entry: Entry) -> str:
        """Name of the environment whose instances the policy solves."""
        policy = self._loaded()
        if self.method.decode == GLOP:
            return entry.problem
        if isinstance(policy, ImprovementPolicy):
            return policy.environment(None).constructive_env.name
        return str(getattr(policy, "env_name", entry.problem))

    def _loaded(self) -> nn.Module:
        if self._policy is None:
            device = find_device(self.method.device)
            source = self.source()
            policy, _ = load_policy(source, device, self.allow_classes)
            if isinstance(policy, ImprovementPolicy) and self.method.decode != IMPROVE:
                raise UnsupportedError(
                    f"expected the method 'improve' for {source}, a {type(policy).__name__}, got "
                    f"{self.method.decode!r}; write {source}:improve:steps=100"
                )
            self._policy = policy
        return self._policy


class ModelRunner(PolicyRunner):
    """Decodes a saved policy."""

    method: ModelMethod

    def __init__(self, method: ModelMethod, allow_classes: Sequence[str | type] = ()) -> None:
        super().__init__(
            method, *_content(find_model(method.model).path), allow_classes=allow_classes
        )

    def source(self) -> Path:
        """What the specification names."""
        return find_model(self.method.model).path


class TrainedRunner(PolicyRunner):
    """Decodes a policy that is trained when it is needed.

    Its identity is that of its recipes, so it is known before there are weights.

    Args:
        method: What the specification says.
        root: Folder of the trained policies.
    """

    method: TrainedMethod

    def __init__(self, method: TrainedMethod, root: Path) -> None:
        keys = [key_of(each) for each in (method.recipe, method.initial) if each is not None]
        super().__init__(method, *keys, without=("recipe", "initial", "device"))
        self.root = root

    def prepare(self) -> None:
        """Trains the policies that are not trained yet."""
        for recipe in self.method.recipes:
            train(recipe, self.root)

    def facts(self) -> dict[str, str]:
        """Recipe and digest of its weights."""
        weights = weights_digest(self.source())
        return {**super().facts(), "recipe": key_of(self.method.recipe), "weights": weights}

    def source(self) -> Path:
        """The folder of the policy, which is trained now if that was not done."""
        return train(self.method.recipe, self.root)

    def options(self) -> Mapping[str, Any]:
        """The method's; first solutions come from the policy of another recipe, if there is one."""
        if self.method.initial is None:
            return self.method.options
        constructive, _ = load_policy(train(self.method.initial, self.root), "cpu")
        return {**self.method.options, "initial": constructive}


def make_runners(
    method: Method,
    spec: BenchmarkSpec,
    pool: WorkerPool,
    folder: Path,
    allow_classes: Sequence[str | type] = (),
) -> list[Runner]:
    """The runners of a method: one for each seed of the specification, if the method has one."""
    if isinstance(method, PolicyMethod):
        has_seed = method.is_random
    else:
        has_seed = "seed" in SOLVERS[method.solver].options
    seeds = spec.seeds if has_seed else ()
    runners = []
    for seed in seeds or (None,):
        seeded = method if seed is None else _with_seed(method, seed)
        runners.append(make_runner(seeded, spec.solver_time_limit, pool, folder, allow_classes))
        runners[-1].seed = seed
    return runners


def make_runner(
    method: Method,
    time_limit: float,
    pool: WorkerPool,
    folder: Path,
    allow_classes: Sequence[str | type] = (),
    solver_batch: int = 1,
) -> Runner:
    """The runner of a method.

    Args:
        method: The method.
        time_limit: Seconds per instance of a solver that names none.
        pool: Worker processes of solvers.
        folder: Folder of trained policies.
        allow_classes: See :func:`~rl4co.tasks.load.load_policy`.
        solver_batch: Instances whose results are stored together by solvers.
    """
    if isinstance(method, ModelMethod):
        return ModelRunner(method, allow_classes)
    if isinstance(method, TrainedMethod):
        return TrainedRunner(method, folder)
    limit = time_limit if method.time_limit is None else method.time_limit
    runner = SolverRunner(method, limit, pool)
    runner.batch_size = solver_batch
    return runner


def _with_seed(method: Method, seed: int) -> Method:
    if isinstance(method, PolicyMethod):
        return dataclasses.replace(method, seed=seed)
    return dataclasses.replace(method, options={**method.options, "seed": seed})


def _content(model: Path) -> list[str]:
    """Digests of a checkpoint, or of the files of a policy folder."""
    files = [model / CONFIG_FILE, model / WEIGHTS_FILE] if model.is_dir() else [model]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()]
