"""JSSP: each operation has one machine; action j + 1 starts the next one of job j."""

from __future__ import annotations

from torch import Tensor

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers.formulations._scheduling import State
from rl4co.solvers.formulations._shops import JobShopFormulation


@FORMULATIONS.register("jssp")
class JSSPFormulation(JobShopFormulation):
    """Job shops."""

    def candidates(self, state: State) -> Tensor:
        """Jobs whose next operation may start `[B, J]`."""
        return state["action_mask"][..., 1:]
