"""`ShopInstance`: a job shop in its original units, and batches of different sizes."""

from __future__ import annotations

import dataclasses

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from tensordict import TensorDict, TensorDictBase

from rl4co.core.errors import ConfigError, InvalidInstanceError

#: Machine → processing time of one operation; machines count from 0.
Operation = Mapping[int, int]
#: The operations of one job, in order.
Job = tuple[Operation, ...]


@dataclasses.dataclass(frozen=True)
class ShopInstance:
    """A (flexible) job shop in its original units.

    Attributes:
        name: Name of the instance.
        num_machines: Number of machines.
        jobs: Operations of each job: machine → processing time. A few benchmark instances have
            operations that take no time.
        source: The file.
        lower_bound: Lower bound on the makespan, if the file has one.
        upper_bound: Makespan of the best-known schedule, if the file has one.
    """

    name: str
    num_machines: int
    jobs: tuple[Job, ...]
    source: Path | None = None
    lower_bound: float | None = None
    upper_bound: float | None = None

    @property
    def num_jobs(self) -> int:
        """Number of jobs."""
        return len(self.jobs)

    @property
    def num_ops(self) -> int:
        """Number of operations of all jobs."""
        return sum(len(job) for job in self.jobs)

    @property
    def is_flexible(self) -> bool:
        """Whether some operation has several machines to choose from."""
        return any(len(operation) > 1 for job in self.jobs for operation in job)

    @property
    def timed_jobs(self) -> tuple[Job, ...]:
        """The jobs without operations that take no time, which a processing time of 0 cannot tell
        from operations that a machine cannot run."""
        jobs = tuple(tuple(op for op in job if any(op.values())) for job in self.jobs)
        for number, job in enumerate(jobs):
            if not job:
                raise InvalidInstanceError(
                    f"expected a job that takes time, got none in job {number} of {self.name}; "
                    "leave it out"
                )
        return jobs

    def to_tensordict(self) -> TensorDict:
        """The instance as the environments take it, without batch axis."""
        return batch_instances([self])[0]

    @classmethod
    def from_tensordict(cls, td: TensorDictBase, name: str = "instance") -> ShopInstance:
        """The instance of a TensorDict without batch axis (an instance or a state).

        Raises:
            InvalidInstanceError: A processing time is not a whole number.
        """
        times, pad = td["proc_times"].double().cpu(), td["pad_mask"].cpu()  # [M, O], [O]
        if times.dim() != 2:
            raise ConfigError(
                f"expected one instance, proc_times [M, O], got {list(times.shape)}; "
                "index the batch first"
            )
        if not torch.equal(times, times.round()):
            raise InvalidInstanceError(
                "expected processing times that are whole numbers, as the formats require, got "
                "fractions; multiply them by a power of ten and round"
            )
        rows = times.t().tolist()  # [O][M]
        jobs = [
            tuple(
                {machine: int(time) for machine, time in enumerate(rows[op]) if time}
                for op in range(first, last + 1)
            )
            for first, last in zip(
                td["start_op_per_job"].tolist(), td["end_op_per_job"].tolist(), strict=True
            )
            if not pad[first]
        ]
        return cls(name, times.shape[0], tuple(jobs))


def batch_instances(instances: Sequence[ShopInstance], num_ops: int | None = None) -> TensorDict:
    """Instances in one batch, padded to the largest of them.

    Machines that an instance does not have can run nothing. Jobs that it does not have point to the
    last operation, which is padding. Operations that take no time are left out.

    Args:
        instances: At least one.
        num_ops: Number of operations to pad to (default: what the instances need).

    Returns:
        `start_op_per_job [B, J]`, `end_op_per_job [B, J]`, `proc_times [B, M, O]`,
        `pad_mask [B, O]`.
    """
    if not instances:
        raise ConfigError("expected at least one instance, got none")
    shops = [instance.timed_jobs for instance in instances]
    lengths = [sum(map(len, jobs)) for jobs in shops]
    size, most_jobs = len(shops), max(map(len, shops))
    machines = max(instance.num_machines for instance in instances)
    # A job of padding needs an operation of padding to point to.
    needed = max(ops + (len(jobs) < most_jobs) for jobs, ops in zip(shops, lengths, strict=True))
    width = needed if num_ops is None else num_ops
    if width < needed:
        raise ConfigError(f"expected num_ops of at least {needed}, got {width}; raise it")
    first = np.full((size, most_jobs), width - 1)
    last = np.full((size, most_jobs), width - 1)
    times = np.zeros((size, machines, width), dtype=np.float32)
    for row, jobs in enumerate(shops):
        ends = np.cumsum([len(job) for job in jobs])
        last[row, : len(jobs)] = ends - 1
        first[row, 1 : len(jobs)] = ends[:-1]
        first[row, 0] = 0
        for column, operation in enumerate(op for job in jobs for op in job):
            times[row, list(operation), column] = list(operation.values())
    tensors = {
        "start_op_per_job": torch.from_numpy(first),
        "end_op_per_job": torch.from_numpy(last),
        "proc_times": torch.from_numpy(times),
        "pad_mask": torch.arange(width) >= torch.tensor(lengths).unsqueeze(-1),  # [B, O]
    }
    return TensorDict(tensors, batch_size=[size])
