"""Shared steps of routing solvers: formulate, solve in worker processes, encode, compare costs.

With initial solutions, the worker gets their routes, and the better ones are kept. If time is over
before a solver has a solution of a plain problem, a simple heuristic provides one.
"""

from __future__ import annotations

import dataclasses
import time

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import (
    NoSolutionError,
    RL4COError,
    StoppedError,
    UnsupportedError,
    format_indices,
)
from rl4co.core.neighbors import MAX_DENSE_NODES
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._cancellation import is_cancelled, report_cut
from rl4co.solvers._geometry import geometries, is_plain
from rl4co.solvers._problem import Route, RoutingProblem
from rl4co.solvers._quick import quick_visits
from rl4co.solvers._worker_pool import map_instances
from rl4co.solvers.formulations import (
    RoutingFormulation,
    formulation_of,
    instances_of,
    pad_actions,
)

#: How far the cost that a solver reports may be from the environment's: float32, and integers.
COST_TOLERANCE = 1e-4
#: Least seconds of a solver.
LEAST_TIME = 0.01


def solve_routing(
    env: RL4COEnvBase,
    td: TensorDictBase,
    target: str,
    arguments: Sequence[Any],
    *,
    max_runtime: float,
    prepare: Callable[[RoutingProblem], RoutingProblem],
    obstacle: Callable[[RoutingProblem], str | None],
    num_procs: int,
    label: str,
    progress: bool | None,
    initial: Tensor | None = None,
    max_vehicles: int | None = None,
) -> Tensor:
    """Solves all instances of a batch.

    Args:
        env: Environment.
        td: State after reset.
        target: Function of the worker, as `package.module:function`. It gets a prepared problem and
            the arguments, and returns routes and their cost as the solver counts it, or None. With
            `initial`, routes to start from are its last argument.
        arguments: Its other arguments, after `max_runtime`.
        max_runtime: Seconds per instance.
        prepare: Converts a problem for the worker.
        obstacle: Why the solver cannot solve a problem; None: it can.
        num_procs: Number of processes.
        label: Name of the solver for the progress bar and messages.
        progress: Whether to show a progress bar; None: if stderr is a terminal.
        initial: Valid initial solutions `[B, T]`; the result is not worse.
        max_vehicles: Most routes of a solution; None: as many as the problem has vehicles.

    Returns:
        Actions `[B, T]`.
    """
    began = time.perf_counter()
    formulation = formulation_of(env, RoutingFormulation)
    reject_dense(env, td, label)
    problems = formulate(env, td, formulation, obstacle, label)
    if max_vehicles is not None:
        problems = [limit_fleet(problem, max_vehicles) for problem in problems]
    prepared = [prepare(problem) for problem in problems]
    left = time_left(began, max_runtime, len(problems))
    jobs = [(problem, left, *arguments) for problem in prepared]
    starts: list[list[Route]] | None = None
    if initial is not None:
        starts = [
            formulation.decode(env, problem, row)
            for problem, row in zip(problems, initial.tolist(), strict=True)
        ]
        for problem, start in zip(problems, starts, strict=True):
            _reject_start(problem, start, label)
        jobs = [(*job, start) for job, start in zip(jobs, starts, strict=True)]

    def to_actions(result: tuple[list[Route], float]) -> Tensor:
        if starts is not None:  # an incumbent may be worse at first
            result = _better(problems[0], result, starts[0])
        return pad_actions([formulation.encode(env, problems[0], result[0])])

    results = map_instances(
        target,
        jobs,
        num_procs,
        description=f"{label} ({env.name})",
        progress=progress,
        max_runtime=left,
        to_actions=to_actions,
    )
    if starts is not None:
        results = list(map(_better, problems, results, starts))
    if None in results and is_plain(env):
        results = _fill_gaps(env, td, problems, results, label)
    unsolved = [index for index, result in enumerate(results) if result is None]
    if unsolved and is_cancelled():
        raise StoppedError(f"expected a solution by {label}, got an interrupt before there was one")
    if unsolved:
        raise NoSolutionError(
            f"expected {label} to find a feasible solution of every {env.name} instance, got none "
            f"of instances {format_indices(unsolved)}; raise max_runtime or try another solver"
        )
    solutions = [
        formulation.encode(env, problem, routes)
        for problem, (routes, _) in zip(problems, results, strict=True)
    ]
    actions = pad_actions(solutions).to(td.device)
    _compare_costs(env, td, actions, problems, [cost for _, cost in results], label)
    return actions


def _fill_gaps(
    env: RL4COEnvBase,
    td: TensorDictBase,
    problems: Sequence[RoutingProblem],
    results: Sequence[tuple[list[Route], float] | None],
    label: str,
) -> list[tuple[list[Route], float] | None]:
    """Simple solutions of a plain problem where a solver has none, if the vehicles suffice."""
    filled = list(results)
    for index, geometry in enumerate(geometries(env, td)):
        if filled[index] is None:
            problem, visits = problems[index], quick_visits(geometry)
            parts = [visits[1:]] if geometry.demand is None else _split(visits)
            routes = [Route(0, nodes) for part in parts if (nodes := part[part > 0].tolist())]
            if len(routes) <= problem.vehicles[0].count:
                filled[index] = routes, problem.cost(routes)
                report_cut(f"{label} found no solution in time; this is a very simple one")
    return filled


def _split(visits: np.ndarray) -> list[np.ndarray]:
    """The visits of each vehicle, with the depots between them."""
    return np.split(visits, np.flatnonzero(visits == 0))


def formulate(
    env: RL4COEnvBase,
    td: TensorDictBase,
    formulation: RoutingFormulation,
    obstacle: Callable[[RoutingProblem], str | None],
    label: str,
) -> list[RoutingProblem]:
    """The instances of a batch as routing problems; raises where there is an obstacle."""
    problems = [formulation.formulate(env, instance) for instance in instances_of(td)]
    for problem in problems:
        reason = obstacle(problem)
        if reason is not None:
            raise UnsupportedError(f"{label} cannot solve this {env.name} instance: {reason}")
    return problems


def limit_fleet(problem: RoutingProblem, max_vehicles: int) -> RoutingProblem:
    """The problem with no more vehicles than these."""
    check_at_least(1, max_vehicles=max_vehicles)
    if len(problem.vehicles) > 1:
        raise UnsupportedError(
            f"expected vehicles of one kind to limit their number, got {len(problem.vehicles)} "
            "kinds; leave out max_vehicles"
        )
    (fleet,) = problem.vehicles
    fleet = dataclasses.replace(fleet, count=min(fleet.count, max_vehicles))
    return dataclasses.replace(problem, vehicles=(fleet,))


def time_left(began: float, max_runtime: float, num_instances: int) -> float:
    """Seconds per instance that are left after all of them were prepared."""
    spent = (time.perf_counter() - began) / num_instances
    return max(max_runtime - spent, LEAST_TIME)


def reject_dense(env: RL4COEnvBase, td: TensorDictBase, label: str) -> None:
    """Raises for instances whose matrix of all distances would be too large."""
    nodes = td["action_mask"].shape[-1]
    if nodes > MAX_DENSE_NODES:
        raise UnsupportedError(
            f"expected at most {MAX_DENSE_NODES:,} nodes for {label}, which needs the distances of "
            f"all pairs, got {nodes:,}; the solvers ils, sweep, random_insertion and (for the TSP "
            "and the CVRP) insertion do without"
        )


def _reject_start(problem: RoutingProblem, start: Sequence[Route], label: str) -> None:
    """Raises unless a valid solution of the environment is one of the formulation as well."""
    visits = [node for route in start for node in route.nodes]
    if len(set(visits)) < len(visits):
        raise UnsupportedError(
            f"expected initial solutions without split deliveries, which {label} does not know, "
            "got a customer that is visited twice"
        )
    for kind, vehicle in enumerate(problem.vehicles):
        used = sum(route.vehicle == kind for route in start)
        if used > vehicle.count:
            raise UnsupportedError(
                f"expected initial solutions with at most {vehicle.count} vehicles for {label}, "
                f"got {used}"
            )


def _better(
    problem: RoutingProblem, result: tuple[list[Route], float] | None, start: list[Route]
) -> tuple[list[Route], float]:
    """What the worker found, or what it began with if that costs no more."""
    before = problem.cost(start)
    return (start, before) if result is None or before <= problem.cost(result[0]) else result


def _compare_costs(
    env: RL4COEnvBase,
    td: TensorDictBase,
    actions: Tensor,
    problems: Sequence[RoutingProblem],
    costs: Sequence[float],
    label: str,
) -> None:
    """Raises unless solver and environment agree on what the solutions cost.

    They differ if a subclass of the environment overrides its objective. Then the solver has
    minimised something else.
    """
    reported = torch.tensor(costs, dtype=torch.float64)
    counted = -env.get_reward(td, actions, check_solution=True).double().cpu()  # [B]
    size = [abs(p.constant) + float(abs(p.length).max()) for p in problems]
    scale = counted.abs() + torch.tensor(size, dtype=torch.float64)
    wrong = ((reported - counted).abs() > COST_TOLERANCE * scale).nonzero().flatten().tolist()
    if wrong:
        first = wrong[0]
        raise RL4COError(
            f"expected {label} and {env.name} to agree on costs, got {costs[first]:g} and "
            f"{float(counted[first]):g} (instances {format_indices(wrong)}); does the environment "
            "override the objective?"
        )
