"""Instances of the flexible job shop: random ones, and those in files."""

from __future__ import annotations

import math
import os

from pathlib import Path

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.data.formats.shop import ShopInstance, batch_instances
from rl4co.envs.generator import Generator, check_count
from rl4co.envs.point_patterns import device_of, rand
from rl4co.envs.scheduling.fjsp import parser

#: Processing times differ from an operation's mean by this share at most (Song et al., 2022).
SPREAD = 0.2


class FJSPGenerator(Generator):
    """Random flexible job shops, after Song et al. (2022).

    A job has a uniform number of operations, an operation a uniform number of eligible machines
    (chosen at random) and a mean processing time $\\bar p$; the time on each eligible machine is a
    uniform whole number between $0.8 \\bar p$ and $1.2 \\bar p$ (rounded), within the limits.

    Args:
        num_jobs: Number of jobs J.
        num_machines: Number of machines M.
        min_ops_per_job: Fewest operations of a job; None is 0.8 M (4 for 5 machines).
        max_ops_per_job: Most operations of a job; None is 1.2 M (6 for 5 machines).
        min_processing_time: Smallest processing time, at least 1.
        max_processing_time: Largest processing time (included).
        min_eligible_ma_per_op: Fewest eligible machines of an operation.
        max_eligible_ma_per_op: Most eligible machines of an operation; None is M.
        same_mean_per_op: Draw times around a mean of the operation; False draws the time on each
            machine between the limits.

    Returns:
        `start_op_per_job [*B, J]`, `end_op_per_job [*B, J]`, `proc_times [*B, M, O]`,
        `pad_mask [*B, O]`, where O is J times the most operations of a job.
    """

    def __init__(
        self,
        num_jobs: int = 10,
        num_machines: int = 5,
        min_ops_per_job: int | None = None,
        max_ops_per_job: int | None = None,
        min_processing_time: int = 1,
        max_processing_time: int = 20,
        min_eligible_ma_per_op: int = 1,
        max_eligible_ma_per_op: int | None = None,
        same_mean_per_op: bool = True,
    ) -> None:
        self.num_jobs = check_count("num_jobs", num_jobs)
        self.num_machines = check_count("num_machines", num_machines)
        few, many = max(1, int(0.8 * num_machines)), max(1, int(1.2 * num_machines))
        self.min_ops_per_job = few if min_ops_per_job is None else min_ops_per_job
        self.max_ops_per_job = many if max_ops_per_job is None else max_ops_per_job
        self.min_processing_time = min_processing_time
        self.max_processing_time = max_processing_time
        self.min_eligible_ma_per_op = min_eligible_ma_per_op
        self.max_eligible_ma_per_op = (
            num_machines if max_eligible_ma_per_op is None else max_eligible_ma_per_op
        )
        self.same_mean_per_op = same_mean_per_op
        check_range("ops_per_job", self.min_ops_per_job, self.max_ops_per_job)
        check_range("processing_time", min_processing_time, max_processing_time)
        check_range("eligible_ma_per_op", min_eligible_ma_per_op, self.max_eligible_ma_per_op)
        if self.max_eligible_ma_per_op > num_machines:
            raise ConfigError(
                f"expected max_eligible_ma_per_op <= num_machines = {num_machines}, "
                f"got {self.max_eligible_ma_per_op}"
            )

    @property
    def num_mas(self) -> int:
        """Number of machines."""
        return self.num_machines

    @property
    def n_ops_max(self) -> int:
        """Number of operations with padding, O."""
        return self.num_jobs * self.max_ops_per_job

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        structure = self._sample_jobs(batch_size, rng)
        times = self._sample_times(batch_size, rng)  # [*B, M, O]
        real = ~structure["pad_mask"].unsqueeze(-2)
        instance = {**structure, "proc_times": (times * real).float()}
        return TensorDict(instance, batch_size=batch_size)

    def _sample_jobs(
        self, batch_size: torch.Size, rng: torch.Generator | None
    ) -> dict[str, Tensor]:
        """Which operations belong to which job."""
        size = (*batch_size, self.num_jobs)
        lengths = integers(self.min_ops_per_job, self.max_ops_per_job, size, rng)
        ends = lengths.cumsum(-1)  # [*B, J]
        positions = torch.arange(self.n_ops_max, device=ends.device)
        return {
            "start_op_per_job": ends - lengths,
            "end_op_per_job": ends - 1,
            "pad_mask": positions >= ends[..., -1:],  # [*B, O]
        }

    def _sample_times(self, batch_size: torch.Size, rng: torch.Generator | None) -> Tensor:
        """Processing times `[*B, M, O]`, 0 where a machine is not eligible."""
        size = (*batch_size, self.num_machines, self.n_ops_max)
        fewest, most = self.min_eligible_ma_per_op, self.max_eligible_ma_per_op
        count = integers(fewest, most, (*batch_size, 1, self.n_ops_max), rng)
        # The machines with the smallest of random keys, which are different with certainty.
        rank = rand(torch.Size(size), rng).argsort(-2).argsort(-2)  # [*B, M, O]
        low, high = self.min_processing_time, self.max_processing_time
        if not self.same_mean_per_op:
            return integers(low, high, size, rng) * (rank < count)
        mean = integers(low, high, (*batch_size, 1, self.n_ops_max), rng)
        smallest = (mean * (1 - SPREAD)).round().clamp_min(low)  # [*B, 1, O]
        largest = (mean * (1 + SPREAD)).round().clamp_max(high)
        share = rand(torch.Size(size), rng)
        times = smallest + (share * (largest - smallest + 1)).floor()
        return torch.minimum(times, largest) * (rank < count)


class FJSPFileGenerator(Generator):
    """Flexible job shops from files, padded to the largest of them.

    It gives the instances in the order of the file names, again from the first one on if more are
    asked for than there are; with `shuffle`, a random choice of them.

    Args:
        file_path: A file, or a folder of files in the FJS format (other files in it, such as
            tables, may have the suffixes of :data:`rl4co.envs.scheduling.fjsp.parser.IGNORED`).
        n_ops_max: Number of operations to pad to; None takes what the largest instance needs.
        shuffle: Draw instances at random.

    Returns:
        See :class:`FJSPGenerator`.
    """

    @staticmethod
    def read_instances(path: Path) -> list[ShopInstance]:
        """All instances of one file."""
        return parser.read_instances(path)

    def __init__(
        self,
        file_path: str | os.PathLike[str],
        n_ops_max: int | None = None,
        shuffle: bool = False,
    ) -> None:
        self.file_path = str(file_path)
        self.shuffle = shuffle
        shops = [
            shop for file in parser.list_files(file_path) for shop in self.read_instances(file)
        ]
        self._names = [shop.name for shop in shops]
        self._instances = batch_instances(shops, n_ops_max)

    @property
    def instances(self) -> TensorDict:
        """All instances, in the order of the file names."""
        return self._instances.clone()

    @property
    def names(self) -> list[str]:
        """The names of the instances."""
        return list(self._names)

    @property
    def num_samples(self) -> int:
        """Number of instances."""
        return len(self._names)

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        count = math.prod(batch_size)
        if self.shuffle:
            index = integers(0, self.num_samples - 1, (count,), rng)
        else:
            index = torch.arange(count, device=device_of(rng)) % self.num_samples
        chosen = self._instances.to(index.device)[index]
        return chosen.reshape(batch_size) if len(batch_size) else chosen[0]


def integers(
    low: int, high: int, size: tuple[int, ...] | torch.Size, rng: torch.Generator | None
) -> Tensor:
    """Uniform whole numbers from `low` to `high`, both included."""
    return torch.randint(low, high + 1, size, generator=rng, device=device_of(rng))


def check_range(what: str, low: int, high: int) -> None:
    """Raises unless `1 <= low <= high` are integers."""
    check_count(f"min_{what}", low)
    check_count(f"max_{what}", high)
    if low > high:
        raise ConfigError(f"expected min_{what} <= max_{what}, got {low!r} and {high!r}")
