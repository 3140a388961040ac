"""Instances of the single machine total weighted tardiness problem."""

from __future__ import annotations

import torch

from tensordict import TensorDict
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.envs.generator import Generator, check_count, check_interval
from rl4co.envs.point_patterns import device_of


class SMTWTPGenerator(Generator):
    """Due times, weights and processing times, uniform and independent (Ye et al., 2023, DeepACO).

    With processing times of 1/2 on average and due times up to half the number of jobs, about half
    of the work is due when half of it can be done. DeepACO draws due times up to the number of jobs
    (`max_time_span=num_job`), which makes easier instances.

    Args:
        num_job: Number of jobs J.
        min_time_span: Smallest due time.
        max_time_span: Largest due time; None is `num_job / 2`.
        min_job_weight: Smallest weight.
        max_job_weight: Largest weight.
        min_process_time: Lower end of the processing times, which is never drawn.
        max_process_time: Largest processing time.

    Returns:
        `job_due_time`, `job_weight` and `job_process_time`, all `[*B, num_job + 1]`; the first
        entry belongs to a dummy job and is 0.
    """

    def __init__(
        self,
        num_job: int = 10,
        min_time_span: float = 0.0,
        max_time_span: float | None = None,
        min_job_weight: float = 0.0,
        max_job_weight: float = 1.0,
        min_process_time: float = 0.0,
        max_process_time: float = 1.0,
    ) -> None:
        self.num_job = check_count("num_job", num_job)
        self.min_time_span = min_time_span
        self.max_time_span = num_job / 2 if max_time_span is None else max_time_span
        self.min_job_weight, self.max_job_weight = min_job_weight, max_job_weight
        self.min_process_time, self.max_process_time = min_process_time, max_process_time
        check_interval("time_span", self.min_time_span, self.max_time_span)
        check_interval("job_weight", min_job_weight, max_job_weight)
        check_interval("process_time", min_process_time, max_process_time)
        check_at_least(0, min_job_weight=min_job_weight, min_process_time=min_process_time)

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        size = (3, *batch_size, self.num_job)
        due, weight, process = torch.rand(size, generator=rng, device=device_of(rng))  # [*B, J]
        instance = {
            "job_due_time": _scale(due, self.min_time_span, self.max_time_span),
            "job_weight": _scale(weight, self.min_job_weight, self.max_job_weight),
            # From (low, high] instead of [low, high): every job takes some time.
            "job_process_time": _scale(1.0 - process, self.min_process_time, self.max_process_time),
        }
        dummy = torch.zeros_like(due[..., :1])
        padded = {key: torch.cat([dummy, value], -1) for key, value in instance.items()}
        return TensorDict(padded, batch_size=batch_size)


def _scale(share: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * share
