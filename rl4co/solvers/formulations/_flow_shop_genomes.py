"""Flexible flow shop: schedules as one number for each job and stage.

The integer part of a number is the machine of the stage, its fraction the place in the queue
(Kwon et al., 2021, appendix, describe this for the evolutionary methods that they compare with).
Operations begin as early as their machine and the stage before allow.
"""

from __future__ import annotations

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.decoding.rollout import rollout
from rl4co.envs.scheduling.ffsp.env import FFSPEnv
from rl4co.envs.scheduling.ffsp.schedule import left_shift
from rl4co.solvers.dispatching import dispatching_policy

#: Share of numbers that a child has from its father, and of numbers that are drawn anew.
CROSSOVER_RATE, MUTATION_RATE = 0.5, 0.02


class FlowShopEncoding:
    """Numbers `[J * S]` as genomes, see :class:`rl4co.solvers._evolution.Encoding`.

    Args:
        env: Environment.
        td: State after reset, batch `[B]`.
    """

    shots, population, elite = 25_000, 25, 4

    def __init__(self, env: FFSPEnv, td: TensorDictBase) -> None:
        self.env, self.td, self.run_time = env, td, td["run_time"]
        self.num_jobs, num_machines = self.run_time.shape[-2:]
        self.num_stages = td["schedule"].shape[-2]
        self.per_stage = num_machines // self.num_stages
        self.upper: float | None = float(self.per_stage)

    def draw(self, count: int, rng: torch.Generator | None) -> Tensor:
        """Uniform numbers; the first genome is the schedule of the rule "shortest job first"."""
        size = (len(self.run_time), count, self.num_jobs * self.num_stages)
        genomes = self.per_stage * torch.rand(size, generator=rng, device=self.run_time.device)
        return torch.cat([self._dispatched().unsqueeze(1), genomes[:, 1:]], 1)

    def breed(self, mothers: Tensor, fathers: Tensor, rng: torch.Generator | None) -> Tensor:
        """Mostly the mother, partly the father, and some numbers of its own."""
        lottery = torch.rand(3, *mothers.shape, generator=rng, device=mothers.device)
        child = torch.where(lottery[0] < CROSSOVER_RATE, fathers, mothers)
        return torch.where(lottery[1] < MUTATION_RATE, self.per_stage * lottery[2], child)

    def score(self, genomes: Tensor) -> Tensor:
        """Minus the makespans."""
        run_time = self.run_time.unsqueeze(1).expand(-1, genomes.shape[1], -1, -1)
        start, machine = self._schedule(run_time, genomes)
        end = start + run_time.gather(-1, machine)  # [B, C, J, S]
        return -end.flatten(-2).amax(-1).float()

    def decode(self, genomes: Tensor) -> Tensor:
        """The actions that lead to the schedule."""
        start, machine = self._schedule(self.run_time, genomes)
        return self.env.actions_from_schedule(self.td, start, machine)

    def _schedule(self, run_time: Tensor, genomes: Tensor) -> tuple[Tensor, Tensor]:
        """Starts and machines `[*B, J, S]` of genomes `[*B, L]`."""
        numbers = genomes.unflatten(-1, (self.num_jobs, self.num_stages))  # [*B, J, S]
        stage = torch.arange(self.num_stages, device=genomes.device)
        machine = numbers.long() + stage * self.per_stage
        place = numbers.frac().argsort(-2).argsort(-2)  # in the queue of the stage
        return left_shift(run_time, place + stage * self.num_jobs, machine), machine

    def _dispatched(self) -> Tensor:
        """The genome `[B, L]` of the rule "shortest job first"."""
        actions = rollout(self.env, self.td, dispatching_policy(self.env, "spt"))[2]
        schedule = self.env.get_schedule(self.td, actions)
        start, machine = schedule.by_job(self.num_jobs, self.num_stages)  # [B, J, S]
        place = start.argsort(-2).argsort(-2)
        numbers = machine % self.per_stage + place / self.num_jobs
        return numbers.flatten(-2)
