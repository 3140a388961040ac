"""CP-SAT, the constraint solver of OR-Tools (Google), for scheduling problems.

https://developers.google.com/optimization/cp/cp_solver. Each instance is solved by a model of
interval variables: job shops and flow shops are shops in which each operation runs on one of
several machines, one at a time, and the makespan is minimised; on a single machine it is the sum of
weighted tardinesses. The search begins with the best solution of some dispatching rules (or a given
one), so there is a solution however short the time is.

The result tells more than solutions and costs: `bounds` are lower bounds on the costs, and
`optimal` says where optimality is proven.

    solutions = env.solve(instances, solver="cpsat", max_runtime=60.0)
    actions, costs = solutions
    gaps = costs / solutions.bounds - 1

CP-SAT computes with integers. Times (and weights) that are whole numbers are taken as they are;
others are rounded down to a resolution of $10^{-6}$, due times up, so that bounds stay valid, and
"optimal" means up to the rounding. Costs are exact: they come from the environment.

Optimal schedules of shops wait now and then although an operation could start. Environments accept
this in solutions also where they mask it for their agents (`mask_no_ops=True`).
"""

from __future__ import annotations

import os
import time

from collections.abc import Sequence
from importlib.util import find_spec

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import MissingDependencyError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import SolverResult, register_solver
from rl4co.solvers._cancellation import report_incumbent
from rl4co.solvers._routing import time_left
from rl4co.solvers._worker_pool import map_instances
from rl4co.solvers.dispatching import dispatching
from rl4co.solvers.formulations import SchedulingFormulation, formulation_of

#: Share of the time that dispatching rules get.
FIRST_SHARE = 0.25
#: Reading a solution back takes about as long as preparing so many tasks.
READING_TIME = 8


@register_solver("cpsat", reads=SchedulingFormulation)
def cpsat(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    initial: Tensor | None = None,
    num_workers: int | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> SolverResult:
    """Solutions by CP-SAT, with lower bounds and proofs of optimality.

    Options:
        max_runtime: Seconds per instance at most, dispatching rules included; the search ends
            earlier if it proves optimality.
        initial: Initial solutions `[B, T]`; None: the best of some dispatching rules.
        num_workers: Threads per instance; None shares all cores among the processes. More threads
            run more strategies side by side: 8 are a good number if there are as many cores. With
            1 and enough time, results are reproducible.
        seed: Seed of the search.

    Returns:
        Actions `[B, T]`, bounds `[B]` and proofs `[B]`.
    """
    if find_spec("ortools") is None:
        raise MissingDependencyError("ortools", "solvers")
    check_at_least(0, seed=seed)
    check_at_least(1, num_workers=num_workers)
    threads = max(1, (os.cpu_count() or 1) // num_procs) if num_workers is None else num_workers
    began = time.perf_counter()
    model = formulation_of(env, SchedulingFormulation)
    if initial is None:
        first, first_costs = _first_solutions(env, td, model, FIRST_SHARE * max_runtime)
    else:
        first, first_costs = initial, -env.get_reward(td, initial, check_solution=False)  # [B]
    report_incumbent(lambda: first)
    preparing_began = time.perf_counter()
    tasks = model.tasks(env, td, first)
    reserve = READING_TIME * (time.perf_counter() - preparing_began)
    search_time = time_left(began - reserve, max_runtime, len(tasks))
    results = map_instances(
        model.target,
        [(*task.arguments, (search_time, threads, seed, task.unit)) for task in tasks],
        num_procs,
        description=f"CP-SAT ({env.name})",
        progress=progress,
        max_runtime=search_time,
        to_actions=lambda result: model.encode(env, td, result[:1]),
    )
    results = [
        # Interrupted before the worker has said anything: what it began with, and no bound.
        (task.arguments[-1], 0.0, False) if result is None else result
        for task, result in zip(tasks, results, strict=True)
    ]
    orders, lower, proven = zip(*results, strict=True)
    report_incumbent(lambda: model.encode(env, td, orders))
    actions, costs = _never_worse(
        env, td, model.encode(env, td, orders), first, first_costs, model.idle
    )
    units = [task.unit for task in tasks]
    numbers = [bound * unit for bound, unit in zip(lower, units, strict=True)]
    bounds = torch.tensor(numbers, dtype=torch.float64, device=costs.device)
    # A solution that meets its bound is optimal, also if the search did not get to say so.
    optimal = torch.tensor(proven, device=costs.device) | (costs.double() <= bounds)
    return SolverResult(actions, bounds, optimal)


def _first_solutions(
    env: RL4COEnvBase, td: TensorDictBase, model: SchedulingFormulation, seconds: float
) -> tuple[Tensor, Tensor]:
    """The best of some dispatching rules: of those that there is time for, or the first.

    Args:
        env: Environment.
        td: State after reset.
        model: Names the rules.
        seconds: Seconds per instance.

    Returns:
        Actions `[B, T]` and costs `[B]`.
    """
    began, solutions = time.perf_counter(), []
    for rule in model.first_rules:
        solutions.append(dispatching(env, td, rule=rule))
        spent = (time.perf_counter() - began) / len(td)
        if spent * (1 + 1 / len(solutions)) > seconds:  # another rule would take too long
            break
    costs, best = torch.stack([solution.costs for solution in solutions]).min(0)  # [B]
    return _pick(td, [solution.actions for solution in solutions], best, model.idle), costs


def _never_worse(
    env: RL4COEnvBase,
    td: TensorDictBase,
    actions: Tensor,
    first: Tensor,
    first_costs: Tensor,
    idle: int,
) -> tuple[Tensor, Tensor]:
    """The better one of two solutions of each instance: rounding may have hidden which it is.

    Returns:
        Actions `[B, T]` and costs `[B]`.
    """
    new_costs = -env.get_reward(td, actions, check_solution=False)
    costs, which = torch.stack([new_costs, first_costs]).min(0)  # [B]
    return _pick(td, [actions, first], which, idle), costs


def _pick(td: TensorDictBase, solutions: Sequence[Tensor], which: Tensor, idle: int) -> Tensor:
    """Row b of solution `which[b]`; shorter ones end with the action of finished instances."""
    idle %= td["action_mask"].shape[-1]
    longest = max(actions.shape[-1] for actions in solutions)
    rows = torch.full((len(solutions), len(which), longest), idle, device=which.device)
    for row, actions in zip(rows, solutions, strict=True):
        row[:, : actions.shape[-1]] = actions
    return rows[which, torch.arange(len(which), device=which.device)]  # [B, T]
