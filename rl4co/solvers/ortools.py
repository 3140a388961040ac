"""The routing solver of OR-Tools (Google), for all sorts of routing problems.

https://developers.google.com/optimization/routing. The search is guided local search, and tabu
search where legs do not add up to the cost. It knows every constraint and objective of the routing
environments except split deliveries (on request, the SDVRP is solved without any) and squares of
lateness, and is the default for the longest of several routes and for lateness. Where PyVRP or LKH
can be used, they find better solutions in the same time, much better ones of the OP.

OR-Tools computes with integers, see :mod:`rl4co.solvers._integers` for the resolution and the
rounding of limits. The costs returned are exact: they come from the environment. Prizes of the
SPCTSP are known in advance here: policies cannot be expected to reach these costs.
"""

from __future__ import annotations

from importlib.util import find_spec

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import MissingDependencyError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._integers import to_integers
from rl4co.solvers._routing import solve_routing
from rl4co.solvers.formulations import RoutingFormulation


@register_solver("ortools", reads=RoutingFormulation)
def ortools(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    max_solutions: int | None = None,
    progress: bool | None = None,
    max_vehicles: int | None = None,
) -> Tensor:
    """Solutions by OR-Tools. With `max_solutions` results are reproducible.

    The search is deterministic, so a `seed` is ignored.

    Options:
        max_runtime: Seconds per instance, all of which are used.
        max_solutions: Solutions that local search goes through per instance; None: only time
            counts. Guided local search never stops by itself.
        max_vehicles: Most routes of a solution; None: any number.
    """
    if find_spec("ortools") is None:
        raise MissingDependencyError("ortools", "solvers")
    check_at_least(1, max_solutions=max_solutions)
    return solve_routing(
        env,
        td,
        "rl4co.solvers._ortools_worker:solve_problem",
        (max_solutions,),
        max_runtime=max_runtime,
        prepare=to_integers,
        obstacle=lambda problem: None,
        num_procs=num_procs,
        label="OR-Tools",
        progress=progress,
        max_vehicles=max_vehicles,
    )
