"""LKH, the Lin-Kernighan-Helsgaun heuristic (Helsgaun, 2000): `elkai`, or an LKH-3 executable.

The package `elkai` has tours and paths. The executable of LKH-3, if you have built it, solves
more problems (:mod:`rl4co.solvers._lkh3.worker`): the argument `executable`, or the environment
variable `RL4CO_LKH`, names it. The rest of this text is about the former.

On the instance sizes of the paper it finds optimal tours in nearly all cases. It solves whatever is
formulated as one tour through all nodes, or as one path from the first node to the last. Paths
become tours through one more node, which is next to both of their ends and far from all others.

LKH computes with integers, so distances are shifted and scaled to 0 ... 1,000,000 and rounded:
tours whose lengths differ by less than about one millionth of the largest distance per edge are the
same to it. The costs returned are exact: they come from the environment.

It checks the clock only between its runs, which take minutes for thousands of nodes. So it is
killed when its time is over. The result is its best tour so far or, if there is none yet, one by
insertion, 2-opt and Or-opt; a warning (or the command line) says so.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import MissingDependencyError
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.tsp.cycle import NUM_NEIGHBORS
from rl4co.envs.routing.tsp.insertion import insert_in_order
from rl4co.envs.routing.tsp.local_search import improve_tour
from rl4co.envs.routing.tsp.neighbor_search import improve_tours
from rl4co.solvers._base import register_solver
from rl4co.solvers._cancellation import is_cancelled, report_cut
from rl4co.solvers._geometry import Geometry
from rl4co.solvers._lkh3.solver import VARIABLE, solve_with_executable
from rl4co.solvers._lkh_worker import path_from_tour, read_tour
from rl4co.solvers._problem import Route, RoutingProblem, Vehicle
from rl4co.solvers._quick import quick_visits
from rl4co.solvers._routing import formulate, reject_dense, time_left
from rl4co.solvers._worker_pool import map_instances
from rl4co.solvers.formulations import (
    RoutingFormulation,
    formulation_of,
    instances_of,
    pad_actions,
)
from rl4co.solvers.formulations._routing import one_route

#: Largest integer distance. LKH multiplies by its precision (100) and adds node penalties in 32-bit
#: integers; beyond about 10 million that overflows and aborts the process.
RESOLUTION = 1_000_000
#: Distance to the additional node of an open path, which must not be worth it.
FAR = 9 * RESOLUTION
#: Seconds beyond its limit before LKH is killed; its best tour is on disk.
GRACE = 0.1
LARGEST_SEED = 2**31 - 1


@register_solver("lkh", reads=RoutingFormulation)
def lkh(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    runs: int = 10,
    seed: int = 1,
    executable: str | None = None,
    max_vehicles: int | None = None,
    progress: bool | None = None,
    initial: Tensor | None = None,
) -> Tensor:
    """Tours by LKH. Results are reproducible unless the time limit is reached.

    Options:
        max_runtime: Seconds per instance, after which the best tour so far counts.
        runs: Independent runs of LKH, of which the best counts.
        seed: Seed of LKH.
        executable: Path of LKH-3, which then solves everything. None: that in `RL4CO_LKH`, for what
            `elkai` does not solve.
        max_vehicles: Most routes of a solution; None: any number. A tour is one.
        initial: Solutions with which each run begins `[B, T]`; the result is not worse.

    Returns:
        Actions `[B, T]`; closed tours start at node 0 (or like the initial one, if that is not
        improved).
    """
    check_at_least(1, runs=runs)
    began = time.perf_counter()
    seed = seed or LARGEST_SEED  # LKH reads 0 as the time of day
    reject_dense(env, td, "LKH")
    formulation = formulation_of(env, RoutingFormulation)
    if executable is None and os.environ.get(VARIABLE):
        first = formulation.formulate(env, next(instances_of(td)))
        executable = os.environ[VARIABLE] if find_obstacle(first) else None
    if executable is not None:
        return solve_with_executable(
            env,
            td,
            executable,
            max_runtime=max_runtime,
            num_procs=num_procs,
            runs=runs,
            seed=seed,
            max_vehicles=max_vehicles,
            progress=progress,
            initial=initial,
        )
    if find_spec("elkai") is None:
        raise MissingDependencyError("elkai", "solvers")
    problems = formulate(env, td, formulation, find_obstacle, "LKH")
    distances = torch.from_numpy(np.stack([problem.length for problem in problems]))  # [B, N, N]
    # All instances of a batch have the same number of nodes, and so the same last one.
    last = problems[0].vehicles[0].end
    is_open = bool(last)
    if is_open:
        matrices = path_distances(distances, in_plane="cost_matrix" not in td.keys())
    else:
        matrices = integer_distances(distances)
    locs = None if is_open else td.get("locs", None)
    points = [None] * len(problems) if locs is None else list(locs.double().cpu().numpy())
    starts: list[list[int] | None] = [None] * len(problems)
    if initial is not None:
        starts = [
            [0, *one_route(formulation.decode(env, problem, row)), *([last] if last else [])]
            for problem, row in zip(problems, initial.tolist(), strict=True)
        ]
    jobs = list(map(_Job, matrices.numpy(), starts, points))
    call = _Call(env.name, is_open, runs, seed, max_runtime, num_procs, progress)
    tours = call.run(jobs, time_left(began, max_runtime, len(jobs)))
    inner = slice(1, -1) if is_open else slice(1, None)
    solutions = [
        formulation.encode(env, problem, [Route(0, tour[inner])])
        for problem, tour in zip(problems, tours, strict=True)
    ]
    actions = pad_actions(solutions).to(td.device)
    return actions if initial is None else _better(env, td, actions, initial)


class _Job(NamedTuple):
    """The input of LKH for one instance.

    Attributes:
        matrix: Integer distances `[M, M]`.
        start: Tour or path to start from, or None.
        points: Coordinates `[M, 2]`, if there are any.
    """

    matrix: np.ndarray
    start: list[int] | None = None
    points: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call of LKH for all instances of a batch; arguments as those of the solver.

    Args:
        is_open: Whether paths are wanted.
    """

    problem: str
    is_open: bool
    runs: int
    seed: int
    max_runtime: float
    num_procs: int
    progress: bool | None

    def run(self, jobs: list[_Job], left: float) -> list[list[int]]:
        """Tours from node 0 on, or paths; incumbents where LKH did not finish.

        Args:
            jobs: The instances.
            left: Seconds for each that are left of its time.
        """
        verb = "solve" if jobs[0].start is None else "improve"
        with tempfile.TemporaryDirectory(prefix="rl4co-lkh-") as folder:
            files = [f"{folder}/{number}.tour" for number in range(len(jobs))]
            tours = map_instances(
                f"rl4co.solvers._lkh_worker:{verb}_{'path' if self.is_open else 'tour'}",
                [
                    (job.matrix, self.runs, self.seed, left, file, job.start)
                    for job, file in zip(jobs, files, strict=True)
                ],
                self.num_procs,
                description=f"LKH ({self.problem})",
                progress=self.progress,
                max_runtime=left,
                grace=GRACE,
            )
            return [
                self._rescue(job, file) if tour is None else tour
                for job, file, tour in zip(jobs, files, tours, strict=True)
            ]

    def _rescue(self, job: _Job, file: str) -> list[int]:
        """The tour or path of an instance whose time was over."""
        tour = read_tour(file, len(job.matrix))
        if tour is None and job.start is None and is_cancelled():
            tour = quick_visits(_geometry(job)).tolist()
            report_cut("LKH found no tour in time; this is a very simple one")
        elif tour is None and job.start is None:
            tour = insertion_tour(job)
            report_cut(
                f"LKH found no tour within {self.max_runtime:g} s; this one is by insertion, 2-opt "
                "and Or-opt"
            )
        elif not is_cancelled():
            report_cut(
                f"LKH did not end its {self.runs} runs within {self.max_runtime:g} s; this is its "
                "best tour so far"
            )
        if tour is None:
            assert job.start is not None
            return job.start
        return path_from_tour(tour) if self.is_open else tour


def insertion_tour(job: _Job) -> list[int]:
    """A tour from node 0 on by insertion, 2-opt and Or-opt."""
    points, matrix = _geometry(job)[:2]
    order = np.random.default_rng(0).permutation(len(points))
    tours = insert_in_order(points, order, matrix)[None]
    if matrix is None:
        tours = improve_tours(points[None], tours)
    elif (matrix == matrix.T).all():
        tours = improve_tours(points[None], tours, matrix[None])
    else:
        tours = improve_tour(matrix[None], tours, num_neighbors=NUM_NEIGHBORS)
    from_depot: list[int] = np.roll(tours[0], -int((tours[0] == 0).argmax())).tolist()
    return from_depot


def _geometry(job: _Job) -> Geometry:
    """Coordinates if there are any, which is faster and slightly different; else distances."""
    if job.points is not None:
        return Geometry(job.points)
    return Geometry(np.zeros((len(job.matrix), 2)), job.matrix.astype(np.float64))


def find_obstacle(problem: RoutingProblem) -> str | None:
    """Why `elkai` cannot solve a problem; None: it is a tour or a path through all nodes."""
    vehicle, last = problem.vehicles[0], len(problem.length) - 1
    limits = (problem.delivery, problem.pickup, problem.windows, problem.skip_cost, problem.prize)
    unlimited = not problem.orders and all(limit is None for limit in limits)
    alone = len(problem.vehicles) == 1 and vehicle == Vehicle(end=vehicle.end)
    if unlimited and alone and vehicle.end in (0, last) and problem.objective != "lateness":
        return None
    return (
        "without an executable of LKH-3 it knows tours and paths through all nodes only, of one "
        "vehicle without limits; name one with executable=..., --lkh-executable or the variable "
        f"{VARIABLE}, or use another solver"
    )


def _better(env: RL4COEnvBase, td: TensorDictBase, actions: Tensor, initial: Tensor) -> Tensor:
    """Of each instance the shorter tour `[B, T]`: LKH's lengths are rounded."""
    rewards = (env.get_reward(td, tours, check_solution=False) for tours in (actions, initial))
    improved = torch.gt(*rewards)  # [B]
    return torch.where(improved.unsqueeze(-1), actions, initial.to(actions.device))


def integer_distances(distances: Tensor, resolution: int = RESOLUTION) -> Tensor:
    """Distances of each instance, shifted and scaled to 0 ... `resolution`: `[B, N, N]`.

    Adding a constant to every edge adds N times that constant to every tour, so the best tour
    stays the best.
    """
    inside = ~torch.eye(distances.shape[-1], dtype=torch.bool, device=distances.device)  # [N, N]
    # The diagonal is never travelled and may hold anything, infinity included.
    distances = torch.where(inside, distances, distances.new_zeros(()))
    low = distances.amin((-2, -1), keepdim=True)  # [B, 1, 1]
    extent = (distances.amax((-2, -1), keepdim=True) - low).clamp_min(
        torch.finfo(torch.float64).tiny
    )
    scaled = ((distances - low) / extent * resolution).round().long()
    return torch.where(inside, scaled, scaled.new_zeros(()))


def path_distances(distances: Tensor, in_plane: bool) -> Tensor:
    """Distances with one more node, after the last node and before the first: `[B, M, M]`.

    A tour that uses other ways to and from this node, of which there are M = N + 1, pays
    :data:`FAR` for each. In the plane no path is longer than one between other ends by more than
    twice the largest distance for each end, so this is enough; with any matrix, a lower resolution
    sees to it.
    """
    num_nodes = distances.shape[-1]
    coarse = RESOLUTION if in_plane else FAR // (num_nodes + 1)
    inner = integer_distances(distances, min(RESOLUTION, coarse))
    joined = inner.new_full((len(inner), num_nodes + 1, num_nodes + 1), FAR)
    joined[:, :-1, :-1] = inner
    joined[:, -1, -1] = 0
    joined[:, num_nodes - 1, -1] = joined[:, -1, 0] = 0
    if in_plane:
        # Symmetric distances stay symmetric; the path may come out backwards.
        joined[:, 0, -1] = joined[:, -1, num_nodes - 1] = 0
    return joined
