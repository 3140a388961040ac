"""Cheapest insertion: a quick and simple heuristic for every routing problem.

Routes grow from nothing: again and again the customer (or the order, with both of its nodes) whose
best place costs least is put there. It needs no other package, and its solutions are always valid.
Deliveries of the SDVRP are not split; prizes of the SPCTSP are known in advance.
"""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._routing import solve_routing
from rl4co.solvers.formulations import RoutingFormulation


@register_solver("insertion", reads=RoutingFormulation)
def insertion(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    progress: bool | None = None,
) -> Tensor:
    """Solutions by cheapest insertion; the same instances give the same solutions.

    Args:
        env: Environment.
        td: State after reset.
        max_runtime: Not looked at: a solution is complete at the end only, for 100 customers in
            about a second.
        num_procs: Instances solved at the same time, each in its own process.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        Actions `[B, T]`.
    """
    return solve_routing(
        env,
        td,
        "rl4co.solvers._insertion_worker:solve_problem",
        (),
        prepare=lambda problem: problem,
        obstacle=lambda problem: None,
        num_procs=num_procs,
        label="insertion",
        progress=progress,
    )
