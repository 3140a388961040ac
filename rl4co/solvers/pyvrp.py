"""PyVRP, a state-of-the-art heuristic for vehicle routing (Wouda, Lan and Kool, 2024).

Paper: https://doi.org/10.1287/ijoc.2023.0055. It grew out of hybrid genetic search (HGS); recent
releases use iterated local search. Solutions of instances with 100 customers are within about one
percent of the best known ones after a few seconds.

PyVRP computes with integers, see :mod:`rl4co.solvers._integers` for the resolution and the rounding
of limits. The costs returned are exact: they come from the environment.

The objective is a sum of route lengths and of costs of skipped customers. The longest
route and lateness are not among it, nor are split deliveries: on request, the SDVRP is solved
without any. Prizes of the SPCTSP are known in advance here: policies cannot be expected to reach
these costs.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import MissingDependencyError, UnsupportedError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import register_solver
from rl4co.solvers._integers import to_integers
from rl4co.solvers._problem import RoutingProblem
from rl4co.solvers._routing import solve_routing
from rl4co.solvers.formulations import RoutingFormulation

#: The release that made locations and shipments parts of a model.
OLDEST = (0, 14)


@register_solver("pyvrp", reads=RoutingFormulation)
def pyvrp(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    max_iterations: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
    initial: Tensor | None = None,
    max_vehicles: int | None = None,
) -> Tensor:
    """Solutions by PyVRP. With `max_iterations` results are reproducible.

    Options:
        max_runtime: Seconds per instance, all of which are used.
        max_iterations: Most iterations per instance; None: only time counts.
        seed: Seed of PyVRP.
        max_vehicles: Most routes of a solution; None: any number.
    """
    if find_spec("pyvrp") is None:
        raise MissingDependencyError("pyvrp", "solvers")
    installed = version("pyvrp")
    if tuple(int(part) for part in installed.split(".")[:2]) < OLDEST:
        raise UnsupportedError(
            f"expected pyvrp {'.'.join(map(str, OLDEST))} or later, which needs Python 3.11, got "
            f"{installed}; upgrade it or use ortools"
        )
    check_at_least(1, max_iterations=max_iterations)
    check_at_least(0, seed=seed)
    return solve_routing(
        env,
        td,
        "rl4co.solvers._pyvrp_worker:solve_problem",
        (max_iterations, seed),
        max_runtime=max_runtime,
        prepare=to_integers,
        obstacle=find_obstacle,
        num_procs=num_procs,
        label="PyVRP",
        progress=progress,
        initial=initial,
        max_vehicles=max_vehicles,
    )


def find_obstacle(problem: RoutingProblem) -> str | None:
    """Why PyVRP cannot solve a problem; None: it can."""
    if problem.objective != "sum":
        return (
            "it minimises the total cost, not the longest route or lateness; use ortools, or let "
            "the environment minimise the sum"
        )
    if problem.deliveries_first and problem.pickup is not None and problem.delivery is not None:
        # The order is kept by forbidding legs from backhauls to linehauls; such a customer could
        # stand between them.
        loads = problem.pickup + problem.delivery
        if any(loads[node] == 0 for node in problem.customers):
            return (
                "a customer without demand, and linehauls that come before backhauls; use ortools"
            )
    return None
