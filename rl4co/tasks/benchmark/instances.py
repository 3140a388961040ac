"""The instances of a benchmark: read or generated, passed to methods, evaluated in their units.

An instance of a file is solved classically in its original units, with its own rounding, and by
models as they were trained (in the unit square); either way its value is that of the routes, or of
the schedule, in original units. Instances of an environment are valued by the environment.
"""

from __future__ import annotations

import abc
import glob
import hashlib
import json
import os
import re

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, FileFormatError, RL4COError, UnsupportedError
from rl4co.core.registry import FORMULATIONS
from rl4co.data.formats import Benchmark, find_instances, read_best_known, read_instances
from rl4co.data.formats.content import name_of
from rl4co.data.formats.instance import BenchmarkInstance
from rl4co.data.generate import generate_env_data
from rl4co.envs import get_env
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers.formulations._routing import RoutingFormulation, split_at_depot
from rl4co.tasks.benchmark.spec import DataSource, FileSource, Source
from rl4co.tasks.solve import environment_of

#: Slack on limits relative to them, as lenient as the environments, see docs/files.md.
TOLERANCE = 1e-4


class Entry(abc.ABC):
    """One instance of a benchmark.

    Attributes:
        name: Its name, unique in its set.
        fingerprint: Digest of all that matters to its solutions and their values.
        problem: Name of its environment.
        size: Number of nodes or operations; of actions in instances of an environment.
        maximize: Whether more is better.
        best_known: Best-known value, if there is one.
        note: Why there is none, if there should be.
        decimals: Digits after the point that values have; None: any number.
        solver_options: Limits that the environment does not know, as options of solvers.
    """

    name: str
    fingerprint: str
    problem: str = ""
    size: int = 0
    maximize: bool = False
    best_known: float | None = None
    note: str | None = None
    decimals: int | None = None
    solver_options: Mapping[str, int] = MappingProxyType({})

    @abc.abstractmethod
    def for_solver(self) -> tuple[RL4COEnvBase, TensorDict]:
        """The environment, and the instance for a classical solver as a batch of one."""

    @abc.abstractmethod
    def for_model(self, problem: str) -> tuple[RL4COEnvBase, TensorDict]:
        """The environment, and the instance for a policy as a batch of one.

        Args:
            problem: What the policy solves; it may include the problem of the instance.
        """

    @abc.abstractmethod
    def evaluate(self, actions: Tensor, problem: str) -> tuple[float, list[Any]]:
        """Value of a solution, and the solution in plain lists; raises if it is not valid.

        Args:
            actions: `[T]`, in the environment's encoding.
            problem: Name of that environment, as for :meth:`for_model`.
        """

    def count_vehicles(self, solution: list[Any]) -> int | None:
        """Number of routes of a solution; None where there is only ever one, or none.

        Args:
            solution: As from :meth:`evaluate`.
        """
        return None


class FileEntry(Entry):
    """An instance of a benchmark file.

    Args:
        instance: What the file says.
        source: What the specification says about its set.
        name: Name of the instance.
        part: What tells the instance from others in the same file, if there are any.
    """

    def __init__(self, instance: Benchmark, source: FileSource, name: str, part: str = "") -> None:
        assert instance.source is not None
        self.instance, self.name = instance, name
        content = [instance.source.read_bytes(), str(source.rounding).encode()]
        self.fingerprint = _digest(b"file", *content, *([part.encode()] if part else []))
        self.problem, self.size = instance.problem, instance.size
        self.maximize, self.decimals = instance.maximize, instance.decimals
        self.solver_options = instance.solver_options
        try:
            if source.best_known is None:
                self.best_known = instance.best_known
            else:
                self.best_known = read_best_known(source.best_known, instance, source.column)
        except (RL4COError, OSError) as error:
            self.note = f"no best-known value of {self.name}: {error}"

    def for_solver(self) -> tuple[RL4COEnvBase, TensorDict]:
        """In original units, float64."""
        return environment_of(self.instance), self.instance.to_tensordict(normalize=False)

    def for_model(self, problem: str) -> tuple[RL4COEnvBase, TensorDict]:
        """Scaled as policies expect it, float32."""
        instance = self.instance.as_problem(problem)
        return environment_of(instance), instance.to_tensordict(normalize=True)

    def evaluate(self, actions: Tensor, problem: str) -> tuple[float, list[Any]]:
        """Objective in original units, and routes or schedule."""
        solution = self.instance.as_problem(problem).from_actions(actions)
        self.instance.check(solution, tolerance=TOLERANCE)
        return self.instance.objective(solution), _lists(solution)

    def count_vehicles(self, solution: list[Any]) -> int | None:
        """Number of routes."""
        if not isinstance(self.instance, BenchmarkInstance):
            return None
        layout = self.instance.layout
        return len(solution) if layout.has_depot and not layout.single_route else None


class TensorEntry(Entry):
    """An instance of an environment.

    Args:
        name: Its name.
        td: The instance, as a batch of one.
        env: Environment.
        size: Number of nodes.
        settings: Arguments with which the environment was made.
    """

    def __init__(
        self,
        name: str,
        td: TensorDictBase,
        env: RL4COEnvBase,
        size: int,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name, self.problem, self.size = name, env.name, size
        self.maximize = env.maximizes
        self.td = td
        self.env = env
        arrays = [(key, td[key].contiguous().numpy()) for key in sorted(td.keys())]
        parts = [f"{key}{a.dtype}{a.shape}".encode() + a.tobytes() for key, a in arrays]
        if settings:
            parts.append(json.dumps(dict(settings), sort_keys=True).encode())
        self.fingerprint = _digest(b"env", env.name.encode(), *parts)

    def for_solver(self) -> tuple[RL4COEnvBase, TensorDict]:
        """Unchanged, in float64: costs are sums."""
        return self.env, self.td.apply(lambda x: x.double() if x.is_floating_point() else x)

    def for_model(self, problem: str) -> tuple[RL4COEnvBase, TensorDict]:
        """Unchanged."""
        if problem != self.problem:
            raise UnsupportedError(
                f"expected instances of {problem}, which the model solves, got one of "
                f"{self.problem}"
            )
        return self.env, self.td.clone()

    def evaluate(self, actions: Tensor, problem: str) -> tuple[float, list[Any]]:
        """Reward or cost, and actions."""
        env, td = self.for_solver()
        solution = actions.unsqueeze(0).cpu()  # [1, T]
        reward = float(env.get_reward(env.reset(td), solution, check_solution=True))
        return reward if self.maximize else -reward, actions.tolist()

    def count_vehicles(self, solution: list[Any]) -> int | None:
        """Number of routes, if they are those between visits of the depot."""
        form = FORMULATIONS.get(self.problem)
        plain = RoutingFormulation
        if form is None or not issubclass(form, plain) or form.encode is not plain.encode:
            return None
        return len([route for route in split_at_depot(solution) if route])


class BrokenEntry(Entry):
    """An instance that could not be read; every method fails on it, with this reason.

    Args:
        name: Its name.
        reason: What is wrong with it.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name, self.reason = name, reason
        self.fingerprint = _digest(b"broken", name.encode(), reason.encode())

    def for_solver(self) -> tuple[RL4COEnvBase, TensorDict]:
        """Raises with the reason."""
        raise FileFormatError(self.reason)

    def for_model(self, problem: str) -> tuple[RL4COEnvBase, TensorDict]:
        """Raises with the reason."""
        raise FileFormatError(self.reason)

    def evaluate(self, actions: Tensor, problem: str) -> tuple[float, list[Any]]:
        """Raises with the reason."""
        raise FileFormatError(self.reason)


class InstanceSet:
    """A set of instances.

    Args:
        name: Its name.
        entries: Its instances.
        uniform: Whether all have the same shapes, so that models can solve them in batches.
    """

    def __init__(self, name: str, entries: Sequence[Entry], uniform: bool) -> None:
        self.name, self.entries, self.uniform = name, list(entries), uniform
        if not self.entries:
            raise ConfigError(f"expected at least one instance in the set {name!r}, got none")
        names = Counter(entry.name for entry in self.entries)
        duplicate = next((each for each, count in names.items() if count > 1), None)
        if duplicate is not None:
            raise ConfigError(
                f"expected distinct names of instances in the set {name!r}, got two called "
                f"{duplicate!r}; put their files in two sets"
            )

    def batches(self, size: int) -> Iterator[list[Entry]]:
        """The instances in batches, single ones if they differ in shape."""
        step = size if self.uniform else 1
        for first in range(0, len(self.entries), step):
            yield self.entries[first : first + step]


def load_set(source: Source) -> InstanceSet:
    """Reads or generates a set of instances."""
    if isinstance(source, FileSource):
        return InstanceSet(source.name, list(_read_files(source)), uniform=False)
    if isinstance(source, DataSource):
        env: RL4COEnvBase = get_env(source.env)
        return _tensor_set(source.name, env, env.load_data(source.data)[: source.limit])
    instances = generate_env_data(
        source.env, source.size, seed=source.seed, generator_params=source.params
    )
    env = get_env(source.env, **source.settings)
    return _tensor_set(source.name, env, instances, source.settings)


def _read_files(source: FileSource) -> Iterator[Entry]:
    paths = find_files(source.files)[: source.limit]
    for path, name in zip(paths, _names(paths), strict=True):
        try:
            instances = read_instances(path, rounding=source.rounding)
            if len(instances) == 1:
                yield FileEntry(instances[0], source, name)
                continue
            for each in instances:
                part = each.name.removeprefix(name_of(path))
                yield FileEntry(each, source, f"{name}{part}", part)
        except (RL4COError, OSError) as error:
            yield BrokenEntry(name, str(error))


def _names(paths: Sequence[Path]) -> list[str]:
    """Names of files without their suffixes; the paths of those that would have the same name."""
    stems = [name_of(path) for path in paths]
    folder = os.path.commonpath([path.absolute().parent for path in paths])
    return [
        stem if stems.count(stem) == 1 else path.absolute().relative_to(folder).as_posix()
        for path, stem in zip(paths, stems, strict=True)
    ]


def find_files(patterns: Sequence[str]) -> list[Path]:
    """Instance files under files, folders and patterns, in natural order within each."""
    files: list[Path] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.is_dir():
            paths = find_instances(place)
        elif place.is_file():
            paths = [place]
        else:
            paths = [Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_file()]
        if not paths:
            raise FileNotFoundError(
                f"expected instance files under {pattern!r}, got none; check the path, or give a "
                "pattern such as 'folder/*.vrp'"
            )
        files += sorted(paths, key=_natural)
    return list(dict.fromkeys(files))


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts `eil51` before `eil101`."""
    words = re.findall(r"\d+|\D+", str(path))
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


def _tensor_set(
    name: str,
    env: RL4COEnvBase,
    instances: TensorDictBase,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> InstanceSet:
    num = instances.batch_size[0]
    first = env.reset(instances[:1])
    size = int(first["action_mask"].shape[-1])
    width = len(str(num - 1))
    entries = [
        TensorEntry(f"{index:0{width}d}", instances[index : index + 1], env, size, settings)
        for index in range(num)
    ]
    return InstanceSet(name, entries, uniform=True)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def stack(instances: Sequence[TensorDict]) -> TensorDict:
    """Instances of the same shapes as one batch."""
    return torch.cat(list(instances))


def _lists(solution: Any) -> Any:
    """Nested tuples as lists."""
    return [_lists(part) for part in solution] if isinstance(solution, tuple) else solution
