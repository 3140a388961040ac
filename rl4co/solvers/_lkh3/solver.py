"""LKH-3 by its executable: the problems that it solves, and their conversion."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile

import numpy as np

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._integers import to_integers
from rl4co.solvers._problem import INFINITY, RoutingProblem, Vehicle
from rl4co.solvers._routing import solve_routing

#: Environment variable with the path of the executable.
VARIABLE = "RL4CO_LKH"
#: Units of the largest length: LKH-3 multiplies lengths by 100 in 32-bit integers.
LARGEST = 1_000_000
#: How far travel times may be from lengths, relative to the largest, to be the same.
SAME = 1e-9


def require_executable(path: str | os.PathLike[str]) -> str:
    """The full path of an executable, a file or a name on the search path."""
    program = shutil.which(os.path.abspath(path)) or shutil.which(path)
    if program is None:
        raise ConfigError(
            f"expected the executable of LKH-3, got {os.fspath(path)!r}, which cannot be run; "
            "build it from http://webhotel4.ruc.dk/~keld/research/LKH-3"
        )
    return os.path.abspath(program)


def solve_with_executable(
    env: RL4COEnvBase,
    td: TensorDictBase,
    executable: str | os.PathLike[str],
    *,
    max_runtime: float,
    num_procs: int,
    runs: int,
    seed: int,
    max_vehicles: int | None,
    progress: bool | None,
    initial: Tensor | None,
) -> Tensor:
    """Actions `[B, T]`; for the arguments see :func:`rl4co.solvers.lkh.lkh`."""
    program = require_executable(executable)
    # Created here, as a worker that is killed could not remove it.
    with tempfile.TemporaryDirectory(prefix="rl4co-lkh-") as folder:
        return solve_routing(
            env,
            td,
            "rl4co.solvers._lkh3.worker:solve_problem",
            (program, folder, runs, seed),
            max_runtime=max_runtime,
            prepare=prepare,
            obstacle=find_obstacle,
            num_procs=num_procs,
            label="LKH-3",
            max_vehicles=max_vehicles,
            progress=progress,
            initial=initial,
        )


def prepare(problem: RoutingProblem) -> RoutingProblem:
    """The problem in integers, with times in units of length."""
    if problem.duration is not None and problem.windows is not None and problem.service is not None:
        pace = float(problem.length.max()) / (float(problem.duration.max()) or 1.0)
        problem = dataclasses.replace(
            problem,
            duration=problem.length,
            service=problem.service * pace,
            windows=problem.windows * pace,
        )
    return to_integers(problem, largest=LARGEST)


def find_obstacle(problem: RoutingProblem) -> str | None:
    """Why LKH-3 cannot solve a problem; None: it has a type for it."""
    vehicle = problem.vehicles[0]
    if problem.objective != "sum" or problem.skip_cost is not None or problem.prize is not None:
        return "it minimises the length of routes that visit all customers"
    plain = Vehicle(
        end=None if vehicle.end is None else 0,
        count=vehicle.count,
        capacity=vehicle.capacity,
        max_length=vehicle.max_length,
    )
    if len(problem.vehicles) > 1 or vehicle != plain:
        return "it knows vehicles of one kind, with one depot"
    if problem.orders and (vehicle != Vehicle() or problem.windows is not None):
        return "of pickups with deliveries it knows one tour without limits"
    if problem.windows is None:
        return None
    if vehicle.max_length != INFINITY:
        return "it does not know time windows and a longest route together; use pyvrp"
    if problem.duration is not None and not _is_proportional(problem):
        return "its travel times are lengths, and these are not proportional; use pyvrp"
    return None


def _is_proportional(problem: RoutingProblem) -> bool:
    assert problem.duration is not None
    length, duration = (x / (float(x.max()) or 1.0) for x in (problem.length, problem.duration))
    return bool(np.abs(length - duration).max() <= SAME)
