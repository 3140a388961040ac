"""Write data sets to disk: random instances of any environment, and the sets of the paper.

Imported on first use only: it needs the environments, which themselves read data files.
"""

from __future__ import annotations

import hashlib
import os
import re

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.core.registry import ENVS
from rl4co.data.io import resolve_data, save_tensordict_to_npz
from rl4co.data.recipes import DISTRIBUTIONS_PER_PROBLEM, RECIPES
from rl4co.envs import get_env
from rl4co.envs.base import PHASE_SEEDS, RL4COEnvBase
from rl4co.envs.testing import size_argument

#: Problems of the paper's main benchmark, `problem="all"`.
DEFAULT_PROBLEMS: tuple[str, ...] = ("tsp", "cvrp", "pctsp", "op", "pdp", "atsp")
#: The recipe that is for one size only, and asked for separately.
_EDA = "mdpp"
DEFAULT_SIZES: tuple[int, ...] = (20, 50, 100)


def generate_env_data(
    env_type: str,
    dataset_size: int,
    graph_size: int | None = None,
    *,
    seed: int | None = None,
    size_param: str | None = None,
    generator_params: Mapping[str, Any] | None = None,
) -> TensorDict:
    """Instances of a problem.

    Args:
        env_type: Name of the environment.
        dataset_size: Number of instances.
        graph_size: Size of an instance; None leaves it to `generator_params`.
        seed: Seed of the instances; None draws from torch's global generator.
        size_param: Argument of the generator that sets the size; None: its `num_loc`, `num_job`,
            `grid_size` or the like.
        generator_params: Further arguments of the generator.

    Returns:
        Instances with batch size `[dataset_size]`.
    """
    argument = size_param or size_argument(env_type) or "num_loc"
    size = {} if graph_size is None else {argument: graph_size}
    env = get_env(env_type, generator_params={**size, **(generator_params or {})})
    rng = None if seed is None else torch.Generator().manual_seed(seed)
    return env.generator(dataset_size, rng=rng)


def generate_dataset(
    filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    data_dir: str | os.PathLike[str] = "data",
    name: str = "test",
    problem: str | Sequence[str] = "all",
    dataset_size: int = 10_000,
    graph_sizes: int | Sequence[int] = DEFAULT_SIZES,
    overwrite: bool = False,
    seed: int = PHASE_SEEDS["test"],
    *,
    exist_ok: bool = False,
    size_param: str | None = None,
    generator_params: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write one file for each problem and size.

    Args:
        filename: File, or one file for each problem and size (problems outermost); None writes
            `data_dir/<problem>/<problem><size>_<name>_seed<seed>.npz`.
        data_dir: Folder of the files.
        name: Phase, as part of the file names.
        problem: Name of an environment, several of them, or "all" for those of the paper's main
            benchmark; its own sets are written by :func:`generate_default_datasets`.
        dataset_size: Instances of a file.
        graph_sizes: One or several instance sizes.
        overwrite: Whether existing files are replaced.
        seed: Seed of the instances, the same for every file.
        exist_ok: Whether existing files are kept as they are instead of being an error.
        size_param: Argument of the generators that sets the size; None: its default.
        generator_params: Further arguments of the generators.

    Returns:
        The files, written or kept.

    Raises:
        FileExistsError: A file exists already; then nothing is written.
        UnknownNameError: There is no such environment; then nothing is written.
    """
    problems = DEFAULT_PROBLEMS if problem == "all" else _as_tuple(problem)
    sizes = _as_tuple(graph_sizes)
    files = _file_names(filename, data_dir, name, problems, sizes, seed)
    existing = _reject_existing(files, overwrite or exist_ok)
    for env_type in problems:
        ENVS.location(env_type)  # raises for names that do not exist
    for path, (env_type, size) in zip(files, _tasks(problems, sizes), strict=True):
        if overwrite or path not in existing:
            instances = generate_env_data(
                env_type,
                dataset_size,
                size,
                seed=seed,
                size_param=size_param,
                generator_params=generator_params,
            )
            save_tensordict_to_npz(instances, path)
    return files


def generate_default_datasets(
    data_dir: str | os.PathLike[str] = "data",
    problem: str | Sequence[str] = "all",
    dataset_size: int = 10_000,
    graph_sizes: int | Sequence[int] = DEFAULT_SIZES,
    overwrite: bool = False,
    *,
    exist_ok: bool = False,
    generate_eda: bool = False,
) -> list[Path]:
    """Write the validation (seed 4321) and test (seed 1234) sets of the paper, bit for bit.

    They come from the recipes of :mod:`rl4co.data.recipes`, under the names
    `data_dir/<problem>/<problem>[_<distribution>]<size>_<phase>_seed<seed>.npz`.

    Args:
        data_dir: Folder of the files.
        problem: One of "tsp", "vrp" (the CVRP), "pctsp", "op" (all three kinds of prizes), "pdp"
            and "atsp", several of them, or "all".
        dataset_size: Instances of a file; those of the paper have 10,000.
        graph_sizes: One or several instance sizes.
        overwrite: Whether existing files are replaced.
        exist_ok: Whether existing files are kept as they are instead of being an error.
        generate_eda: Whether to write the 100 test boards of mDPP, too.

    Returns:
        The files, written or kept.

    Raises:
        FileExistsError: A file exists already; then nothing is written.
        UnknownNameError: There is no recipe of that name; then nothing is written.
    """
    routing = tuple(name for name in RECIPES if name != _EDA)
    problems = routing if problem == "all" else _as_tuple(problem)
    for name in problems:
        if name not in routing:
            raise UnknownNameError("set of the paper", name, routing)
    sets = [
        _PaperSet(name, distribution, size, phase, dataset_size)
        for phase in PHASE_SEEDS
        for name in problems
        for distribution in DISTRIBUTIONS_PER_PROBLEM[name]
        for size in _as_tuple(graph_sizes)
    ]
    if generate_eda:
        sets.append(_PaperSet(_EDA, None, 10, "test", 100))
    files = [Path(data_dir) / each.problem / each.file_name for each in sets]
    existing = _reject_existing(files, overwrite or exist_ok)
    for path, each in zip(files, sets, strict=True):
        if overwrite or path not in existing:
            save_tensordict_to_npz(each.generate(), path)
    return files


class _PaperSet(NamedTuple):
    """One file of :func:`generate_default_datasets`."""

    problem: str
    distribution: str | None
    size: int
    phase: str
    num_instances: int

    @property
    def file_name(self) -> str:
        kind = "" if self.distribution is None else f"_{self.distribution}"
        return f"{self.problem}{kind}{self.size}_{self.phase}_seed{PHASE_SEEDS[self.phase]}.npz"

    def generate(self) -> TensorDict:
        kind = () if self.distribution is None else (self.distribution,)
        rng = np.random.RandomState(PHASE_SEEDS[self.phase])
        arrays = RECIPES[self.problem](self.num_instances, self.size, *kind, rng=rng)
        assert arrays is not None  # the only board has size 10
        tensors = {key: torch.from_numpy(array) for key, array in arrays.items()}
        return TensorDict(tensors, batch_size=[self.num_instances])

    @classmethod
    def named(cls, file_name: str) -> _PaperSet | None:
        """The set of the paper that a file name stands for, if it is one."""
        match = _PAPER_NAME.fullmatch(file_name)
        if match is None or match["problem"] not in RECIPES:
            return None
        problem, kind, size, phase, seed = match.groups()
        if kind not in DISTRIBUTIONS_PER_PROBLEM[problem] or PHASE_SEEDS[phase] != int(seed):
            return None
        return cls(problem, kind, int(size), phase, 10_000)


#: File names of the sets of the paper.
_PAPER_NAME = re.compile(
    r"(?P<problem>[a-z]+)(?:_(const|unif|dist))?(\d+)_(val|test)_seed(\d+)\.npz"
)


def write_missing_sets(env: RL4COEnvBase) -> list[Path]:
    """Write the sets of the paper that an environment names and that do not exist yet.

    Returns:
        The files that were written.
    """
    written = []
    for phase in PHASE_SEEDS:
        for name in env.data_files[phase].values():
            path = resolve_data(name, env.data_dir)
            each = None if path.exists() else _PaperSet.named(path.name)
            if each is not None:
                written.append(save_tensordict_to_npz(each.generate(), path))
    return written


def _reject_existing(files: Sequence[Path], allowed: bool) -> list[Path]:
    """The files that exist, which is an error unless allowed."""
    existing = [path for path in files if path.exists()]
    if existing and not allowed:
        raise FileExistsError(
            f"expected files that do not exist yet, got {', '.join(map(str, existing))}; "
            "pass overwrite=True to replace them or exist_ok=True to keep them"
        )
    return existing


def default_files(env: RL4COEnvBase, sizes: Mapping[str, int]) -> dict[str, Path]:
    """Write the validation and test sets of an environment as it is configured.

    File names contain a digest of the generator's parameters, so sets of different distributions
    are never confused; a file that exists is kept.

    Args:
        env: Environment whose generator makes the instances, below its `data_dir`.
        sizes: Phase → number of instances, for the phases wanted.

    Returns:
        Phase → file.
    """
    files = {}
    for phase in sizes:
        seed = PHASE_SEEDS[phase]
        digest = hashlib.blake2b(f"{env.generator!r} {sizes[phase]}".encode(), digest_size=4)
        name = f"{env.name}_{digest.hexdigest()}_{phase}_seed{seed}.npz"
        files[phase] = Path(env.data_dir) / env.name / name
        if not files[phase].exists():
            rng = torch.Generator().manual_seed(seed)
            save_tensordict_to_npz(env.generator(sizes[phase], rng=rng), files[phase])
    return files


def _tasks(problems: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, int]]:
    return ((problem, size) for problem in problems for size in sizes)


def _file_names(
    filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    data_dir: str | os.PathLike[str],
    name: str,
    problems: Sequence[str],
    sizes: Sequence[int],
    seed: int,
) -> list[Path]:
    if filename is None:
        return [
            Path(data_dir) / problem / f"{problem}{size}_{name}_seed{seed}.npz"
            for problem, size in _tasks(problems, sizes)
        ]
    names = [filename] if isinstance(filename, str | os.PathLike) else list(filename)
    paths = [Path(path) for path in names]
    paths = [p if p.suffix == ".npz" else p.with_name(f"{p.name}.npz") for p in paths]
    expected = len(problems) * len(sizes)
    if len(set(paths)) != expected:
        raise ConfigError(
            f"expected {expected} distinct file names for {len(problems)} problems and "
            f"{len(sizes)} sizes, got {[str(path) for path in paths]}"
        )
    return paths


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, str | int) else tuple(value)
