"""The local search of an environment as a solver: it improves a solution until no move helps.

It needs no other package, and no time limit: it ends in a local optimum, in well under a second for
a few hundred nodes. Only some problems have one, see `env.local_search`.
"""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers.nearest_neighbor import nearest_neighbor


@register_solver("local_search")
def local_search(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    initial: Tensor | None = None,
) -> Tensor:
    """Local optima; the same arguments give the same ones.

    Args:
        env: Environment with a local search.
        td: State after reset.
        max_runtime: Not needed here.
        num_procs: Not needed here.
        initial: Solutions to improve `[B, T]`; None: those of the nearest neighbour.

    Returns:
        Actions `[B, T]`.
    """
    start = nearest_neighbor(env, td)[0] if initial is None else initial
    return env.local_search(td, start)
