"""What the processes of a distributed run agree on; in a run of one process, nothing is sent."""

from __future__ import annotations

import torch
import torch.distributed as dist

from torch import Tensor


def num_processes() -> int:
    """Number of processes of the run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum of a tensor over all processes; changes `values` in place."""
    if num_processes() > 1:
        dist.all_reduce(values)
    return values


def global_mean(values: Tensor) -> Tensor:
    """Mean over the batches of all processes, whose sizes may differ, as a constant."""
    values = values.detach()
    if num_processes() == 1:
        return values.mean()
    size = values.new_tensor(values.numel(), dtype=torch.float64)
    total, size = sum_over_processes(torch.stack([values.double().sum(), size]))
    return (total / size).to(values.dtype)
