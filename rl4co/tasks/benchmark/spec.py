"""Specification of a benchmark: methods and sets of instances. Imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math

from collections.abc import Mapping
from typing import Any, TypeAlias

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.registry import ENVS, SOLVERS
from rl4co.pretrained import find_model
from rl4co.tasks.methods import METHODS, find_method, is_random
from rl4co.tasks.metrics import INITIAL_GAP, passmark_score

#: Seconds per instance of solvers, unless the specification says otherwise.
DEFAULT_TIME_LIMIT = 10.0

#: Options of decoding, as in :func:`~rl4co.tasks.evaluate.evaluate_policy`.
DECODE_OPTIONS = (
    "samples", "num_augment", "num_starts", "temperature", "top_p", "top_k", "beam_width",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class SolverMethod:
    """A classical solver or simple heuristic.

    Args:
        solver: Registered name, see `rl4co list solvers`.
        name: Name in tables and plots.
        time_limit: Seconds per instance; None: that of the specification.
        options: Further arguments of the solver.
    """

    solver: str
    name: str = ""
    time_limit: float | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS.names():
            raise UnknownNameError("solver", self.solver, SOLVERS.names())
        if self.time_limit is not None and not 0 < self.time_limit < math.inf:
            raise ConfigError(f"expected a positive time_limit, got {self.time_limit}")


@dataclasses.dataclass(frozen=True)
class PolicyMethod:
    """A way to decode a policy; base of :class:`ModelMethod` and :class:`TrainedMethod`.

    Args:
        name: Name in tables and plots.
        decode: Evaluation method, see `rl4co list methods`.
        batch_size: Instances solved together, where they have the same size.
        passes: How often a random method is repeated; the best counts, and each pass is a point of
            the trajectory.
        seed: Seed of random methods.
        device: cpu, cuda, ... or auto.
        options: Settings of decoding (samples, num_augment, temperature, ...), or of the method.
    """

    name: str = ""
    decode: str = "greedy"
    batch_size: int = 64
    passes: int = 1
    seed: int = 1234
    device: str = "auto"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        find_method(self.decode)  # raises for names that do not exist
        for option in self.options if self.decode in METHODS else ():
            if option not in DECODE_OPTIONS:
                raise UnknownNameError("option of decoding", option, DECODE_OPTIONS)
        for key in ("batch_size", "passes"):
            if getattr(self, key) < 1:
                raise ConfigError(f"expected {key} of at least 1, got {getattr(self, key)}")
        if self.passes > 1 and not self.is_random:
            raise ConfigError(
                f"expected one pass of {self.decode!r}, which gives the same solutions again, got "
                f"{self.passes}; use sampling or augment"
            )

    @property
    def is_random(self) -> bool:
        """Whether another seed gives other solutions."""
        return is_random(self.decode)


@dataclasses.dataclass(frozen=True)
class ModelMethod(PolicyMethod):
    """A saved policy and a way to decode it.

    Args:
        model: Name of a pretrained model, folder written by `save_pretrained`, or checkpoint.
    """

    model: str = dataclasses.field(kw_only=True)

    def __post_init__(self) -> None:
        find_model(self.model)  # raises if there is none
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a policy is trained: an experiment with changes; see :mod:`..recipes`.

    Args:
        experiment: Name of an experiment, see `rl4co list experiments`.
        overrides: Key → value, such as `model.batch_size: 64`; `env: cvrp` chooses a
            configuration of a group.
        steps: Training batches in all, over which the schedule is stretched; None: as many as the
            experiment has.
        epochs: Into how many epochs they are divided; None: 50 steps each, at most 100 epochs.
        seed: Seed of the training.
        start: Recipe whose weights the training starts from; None: initial weights.
    """

    experiment: str
    overrides: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    steps: int | None = None
    epochs: int | None = None
    seed: int = 1
    start: Recipe | None = None

    def __post_init__(self) -> None:
        for key in ("steps", "epochs"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigError(f"expected {key} of at least 1 in a recipe, got {value}")
        if self.epochs is not None and (self.steps is None or self.epochs > self.steps):
            raise ConfigError(
                f"expected at least as many steps as epochs in a recipe, got {self.steps} steps "
                f"and {self.epochs} epochs"
            )


@dataclasses.dataclass(frozen=True)
class TrainedMethod(PolicyMethod):
    """A policy that is trained when it is needed, and a way to decode it.

    Args:
        recipe: How it is trained.
        initial: Recipe of the policy that makes first solutions for the method "improve".
    """

    recipe: Recipe = dataclasses.field(kw_only=True)
    initial: Recipe | None = dataclasses.field(default=None, kw_only=True)

    @property
    def recipes(self) -> list[Recipe]:
        """All trainings that it needs, in an order in which they can run."""
        chain: list[Recipe] = []
        for recipe in (self.recipe, self.initial):
            part: list[Recipe] = []
            while recipe is not None:
                part.insert(0, recipe)
                recipe = recipe.start
            chain += part
        return chain


Method: TypeAlias = SolverMethod | ModelMethod | TrainedMethod


@dataclasses.dataclass(frozen=True)
class FileSource:
    """Benchmark files, in any format of :func:`~rl4co.data.formats.read_instance`.

    Args:
        files: Files, folders or patterns such as `A/*.vrp`.
        name: Name in tables and plots.
        best_known: CSV table of best-known values; None: solutions beside the files, if any.
        column: Column of that table.
        rounding: Rounding of distances in place of the format's own.
        limit: Most files; None: all.
    """

    files: tuple[str, ...]
    name: str = ""
    best_known: str | None = None
    column: str | None = None
    rounding: str | None = None
    limit: int | None = None


@dataclasses.dataclass(frozen=True)
class DataSource:
    """Instances of an environment in an `.npz` file.

    Args:
        data: The file.
        env: Name of the environment.
        name: Name in tables and plots.
        limit: Most instances; None: all.
    """

    data: str
    env: str
    name: str = ""
    limit: int | None = None

    def __post_init__(self) -> None:
        ENVS.location(self.env)  # raises for names that do not exist


@dataclasses.dataclass(frozen=True)
class GeneratedSource:
    """Random instances of an environment.

    Args:
        env: Name of the environment.
        name: Name in tables and plots.
        size: Number of instances.
        seed: Seed of the instances.
        params: Arguments of the generator, such as `num_loc`.
        settings: Arguments of the environment, such as `max_decaps`.
    """

    env: str
    name: str = ""
    size: int = 100
    seed: int = 1234
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        ENVS.location(self.env)  # raises for names that do not exist
        if self.size < 1:
            raise ConfigError(f"expected a size of at least 1 instance, got {self.size}")


Source: TypeAlias = FileSource | DataSource | GeneratedSource


@dataclasses.dataclass(frozen=True)
class PassMark:
    """Ratings by which times are made comparable between machines, see :mod:`..metrics`.

    Args:
        cpu_mark: Rating of one thread of this machine's processor.
        gpu_mark: Rating of its graphics card, for models that run on one.
        reference: Score of the machine to compare with.
    """

    cpu_mark: float
    reference: float
    gpu_mark: float = 0.0

    def __post_init__(self) -> None:
        if not (self.cpu_mark > 0 and self.reference > 0 and self.gpu_mark >= 0):
            raise ConfigError(f"expected positive PassMark ratings, got {self}")

    def score(self, on_gpu: bool) -> float:
        """Score of this machine for a method."""
        return passmark_score(self.cpu_mark, self.gpu_mark if on_gpu else 0.0)


@dataclasses.dataclass(frozen=True)
class BenchmarkSpec:
    """Methods × instances.

    Args:
        methods: Methods to compare.
        instances: Sets of instances to compare them on.
        name: Title of tables and plots.
        reference: Name of the method whose values replace missing best-known ones; None: the
            best values found.
        time_limit: Seconds per instance of solvers that name none, and the time budget of primal
            integrals.
        initial_gap: Gap in percent that primal integrals count before the first solution.
        passmark: Ratings of machines; None: times are as measured.
        seeds: Stochastic methods solve every instance once with each of these seeds; the tables
            show the spread. (): every method runs once, with the seed of its settings.
    """

    methods: tuple[Method, ...]
    instances: tuple[Source, ...]
    name: str = "benchmark"
    reference: str | None = None
    time_limit: float | None = None
    initial_gap: float = INITIAL_GAP
    passmark: PassMark | None = None
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._check_seeds()
        for kind, entries in (("method", self.methods), ("set of instances", self.instances)):
            names = [entry.name for entry in entries]
            if not names:
                raise ConfigError(f"expected at least one {kind}, got none")
            duplicates = sorted({name for name in names if names.count(name) > 1})
            if duplicates:
                raise ConfigError(
                    f"expected distinct names, got two {kind}s called {duplicates[0]!r}; give one "
                    "of them another `name`"
                )
        if self.reference is not None and self.reference not in (m.name for m in self.methods):
            raise UnknownNameError(
                "method (as reference)", self.reference, [m.name for m in self.methods]
            )
        if self.time_limit is not None and not 0 < self.time_limit < math.inf:
            raise ConfigError(f"expected a positive time_limit, got {self.time_limit}")

    def _check_seeds(self) -> None:
        if len(set(self.seeds)) < len(self.seeds) or any(seed < 0 for seed in self.seeds):
            raise ConfigError(f"expected distinct seeds from 0 on, got {list(self.seeds)}")
        for method in self.methods if self.seeds else ():
            if isinstance(method, SolverMethod) and "seed" in method.options:
                raise ConfigError(
                    f"expected `seeds` or a seed of {method.name!r}, got both; leave one out"
                )

    @property
    def solver_time_limit(self) -> float:
        """Seconds per instance of solvers that name none."""
        return DEFAULT_TIME_LIMIT if self.time_limit is None else self.time_limit

    @property
    def horizon(self) -> float:
        """Time budget of primal integrals: `time_limit`, or the largest limit of a method."""
        if self.time_limit is not None:
            return self.time_limit
        limits = [m.time_limit for m in self.methods if isinstance(m, SolverMethod)]
        return max((t for t in limits if t is not None), default=DEFAULT_TIME_LIMIT)
