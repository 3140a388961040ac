"""Instances of the job shop: random ones, and those in files."""

from __future__ import annotations

from pathlib import Path

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.data.formats.shop import ShopInstance
from rl4co.envs.point_patterns import rand
from rl4co.envs.scheduling.fjsp.generator import FJSPFileGenerator, FJSPGenerator, integers
from rl4co.envs.scheduling.jssp import parser


class JSSPGenerator(FJSPGenerator):
    """Random job shops, after Taillard (1993) and Zhang et al. (2020).

    Each job visits every machine once, in random order; processing times are uniform whole numbers.

    Args:
        num_jobs: Number of jobs J.
        num_machines: Number of machines M.
        min_ops_per_job: Fewest operations of a job; None is M.
        max_ops_per_job: Most operations of a job; None is M.
        min_processing_time: Smallest processing time, at least 1.
        max_processing_time: Largest processing time (included).
        one2one_ma_map: Each job visits every machine once; False draws the machine of each
            operation independently.

    Returns:
        See :class:`~rl4co.envs.scheduling.fjsp.generator.FJSPGenerator`.
    """

    def __init__(
        self,
        num_jobs: int = 6,
        num_machines: int = 6,
        min_ops_per_job: int | None = None,
        max_ops_per_job: int | None = None,
        min_processing_time: int = 1,
        max_processing_time: int = 99,
        one2one_ma_map: bool = True,
    ) -> None:
        super().__init__(
            num_jobs=num_jobs,
            num_machines=num_machines,
            min_ops_per_job=num_machines if min_ops_per_job is None else min_ops_per_job,
            max_ops_per_job=num_machines if max_ops_per_job is None else max_ops_per_job,
            min_processing_time=min_processing_time,
            max_processing_time=max_processing_time,
            max_eligible_ma_per_op=1,
            same_mean_per_op=False,
        )
        self.one2one_ma_map = one2one_ma_map
        counts = {self.min_ops_per_job, self.max_ops_per_job}
        if one2one_ma_map and counts != {num_machines}:
            raise ConfigError(
                f"expected {num_machines} operations per job, one for each machine, "
                f"got {self.min_ops_per_job} to {self.max_ops_per_job}; set one2one_ma_map=False"
            )

    def _sample_times(self, batch_size: torch.Size, rng: torch.Generator | None) -> Tensor:
        num_ops, machines = self.n_ops_max, self.num_machines
        if self.one2one_ma_map:
            keys = rand(torch.Size((*batch_size, self.num_jobs, machines)), rng)
            machine = keys.argsort(-1).flatten(-2)  # [*B, J, M] -> [*B, O]
        else:
            machine = integers(0, machines - 1, (*batch_size, num_ops), rng)
        times = integers(
            self.min_processing_time, self.max_processing_time, (*batch_size, 1, num_ops), rng
        )
        rows = torch.arange(machines, device=times.device).unsqueeze(-1)  # [M, 1]
        return times * (machine.unsqueeze(-2) == rows)  # [*B, M, O]


class JSSPFileGenerator(FJSPFileGenerator):
    """Job shops from files, padded to the largest of them.

    See :class:`~rl4co.envs.scheduling.fjsp.generator.FJSPFileGenerator`; files are in the standard
    format of JSPLIB, in Taillard's, in the FJS format (`.fjs`) or arrays (`.npy`).

    Args:
        file_path: A file, or a folder of files.
        n_ops_max: Number of operations to pad to; None takes what the largest instance needs.
        shuffle: Draw instances at random.
    """

    @staticmethod
    def read_instances(path: Path) -> list[ShopInstance]:
        """All instances of one file."""
        return parser.read_instances(path)
