"""FJSP: operations choose their machine; actions are pairs of a job and a machine."""

from __future__ import annotations

import torch

from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations._scheduling import State
from rl4co.solvers.formulations._shops import JobShopFormulation


@FORMULATIONS.register("fjsp")
class FJSPFormulation(JobShopFormulation):
    """Flexible job shops. The job that is chosen goes to its fastest machine that is free."""

    def candidates(self, state: State) -> Tensor:
        """Jobs with a machine that can take them `[B, J]`."""
        return _pairs(state).any(-1)

    def start(self, state: State, job: Tensor) -> Tensor:
        """Actions `[B]` that start jobs on their fastest machine."""
        num_machines = state["proc_times"].shape[-2]
        times = self.startable_times(state)  # [B, J, M]
        index = job[..., None, None].expand(*job.shape, 1, num_machines)
        machine = times.gather(-2, index).squeeze(-2).argmin(-1)  # [B]
        return 1 + job * num_machines + machine

    def startable_times(self, state: State) -> Tensor:
        """Infinite also where the machine is not free `[B, J, M]`."""
        return torch.where(_pairs(state), super().startable_times(state), torch.inf)


def _pairs(state: State) -> Tensor:
    """Allowed pairs `[B, J, M]`."""
    return state["action_mask"][..., 1:].unflatten(-1, (-1, state["proc_times"].shape[-2]))
