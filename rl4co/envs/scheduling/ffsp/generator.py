"""Instances of the flexible flow shop problem."""

from __future__ import annotations

import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError
from rl4co.envs.generator import Generator, check_count
from rl4co.envs.point_patterns import device_of


class FFSPGenerator(Generator):
    """Processing times of jobs on the machines of all stages, uniform integers (Kwon et al., 2021).

    The paper's instances FFSP20, FFSP50 and FFSP100 have three stages of four machines each:
    `FFSPGenerator(num_stage=3, num_machine=4, num_job=20)`.

    Args:
        num_stage: Number of stages S that every job passes.
        num_machine: Number of machines M in each stage.
        num_job: Number of jobs J.
        min_time: Shortest processing time.
        max_time: Upper end of the processing times, excluded: the default 2, 10 gives 2 ... 9.
        flatten_stages: How machines are numbered for policies, see :class:`FFSPEnv`.

    Returns:
        `run_time [*B, num_job, num_stage * num_machine]`, int64; machine m of stage s is column
        `s * num_machine + m`.
    """

    size_argument = "num_job"

    def __init__(
        self,
        num_stage: int = 2,
        num_machine: int = 3,
        num_job: int = 4,
        min_time: int = 2,
        max_time: int = 10,
        flatten_stages: bool = True,
    ) -> None:
        counts = {
            "num_stage": num_stage,
            "num_machine": num_machine,
            "num_job": num_job,
            "min_time": min_time,
        }
        for name, value in counts.items():
            check_count(name, value)
        if not isinstance(max_time, int) or max_time <= min_time:
            raise ConfigError(
                f"expected max_time to be an integer > min_time, got {max_time!r} and "
                f"{min_time!r}; max_time itself is never drawn"
            )
        self.num_stage, self.num_machine, self.num_job = num_stage, num_machine, num_job
        self.num_machine_total = num_stage * num_machine
        self.min_time, self.max_time = min_time, max_time
        self.flatten_stages = flatten_stages

    def _generate(self, batch_size: torch.Size, rng: torch.Generator | None) -> TensorDict:
        shape = (*batch_size, self.num_job, self.num_machine_total)
        run_time = torch.randint(
            self.min_time, self.max_time, shape, generator=rng, device=device_of(rng)
        )  # [*B, J, P]
        return TensorDict({"run_time": run_time}, batch_size=batch_size)
