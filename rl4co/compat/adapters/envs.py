"""Functions of problems that are methods of their environments here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl4co.envs.routing.cvrp import CVRPEnv
from rl4co.envs.routing.mtvrp import MTVRPEnv
from rl4co.envs.routing.tsp import TSPEnv

if TYPE_CHECKING:
    from tensordict import TensorDictBase
    from torch import Tensor


def tsp_local_search(td: TensorDictBase, actions: Tensor, **options: Any) -> Tensor:
    """`TSPEnv.local_search`; `options` are passed on to it."""
    return TSPEnv().local_search(td, actions, **options)


def cvrp_local_search(td: TensorDictBase, actions: Tensor, **options: Any) -> Tensor:
    """`CVRPEnv.local_search`; `options` are passed on to it."""
    return CVRPEnv().local_search(td, actions, **options)


def solve_mtvrp(
    instances: TensorDictBase,
    max_runtime: float,
    num_procs: int = 1,
    solver: str = "pyvrp",
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """`MTVRPEnv.solve`: actions and costs; `options` are passed on to the solver."""
    return MTVRPEnv().solve(
        instances, max_runtime=max_runtime, num_procs=num_procs, solver=solver, **options
    )
