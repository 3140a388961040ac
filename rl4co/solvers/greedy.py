"""Greedy construction: always what is best for the moment, by the measure of the problem."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._evolution import formulation_function


@register_solver("greedy")
def greedy(env: RL4COEnvBase, td: TensorDictBase, *, max_runtime: float, num_procs: int) -> Tensor:
    """Solutions by the greedy construction of the environment's formulation.

    Args:
        env: Environment with a `greedy` in its formulation.
        td: State after reset.
        max_runtime: Not needed here.
        num_procs: Not needed here.

    Returns:
        Actions `[B, T]`.
    """
    return formulation_function(env, "greedy", "greedy")(env, td)
