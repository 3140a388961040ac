"""GLOP as a solver: partition, tours by insertion, revision; with learned parts where available.

Without a partition policy customers are swept around the depot; without revisers tours are improved
by 2-opt, Or-opt and kicks. So the solver runs without any training, and each learned part can be
compared with its classical counterpart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl4co.core.checks import check_at_least
from rl4co.core.errors import ConfigError
from rl4co.core.modes import evaluating
from rl4co.core.rng import derive_generator
from rl4co.envs.base import RL4COEnvBase
from rl4co.envs.routing.cvrp.sweep import join_routes, sweep_partition
from rl4co.envs.routing.cvrpmvc.env import CVRPMVCEnv
from rl4co.models.policies.pretrained import load_pretrained
from rl4co.models.zoo.glop.adapter import (
    Budget,
    CVRPAdapter,
    TourSolver,
    TSPAdapter,
    make_tour_solver,
)
from rl4co.models.zoo.glop.revision import Reviser, check_revisers
from rl4co.solvers._base import register_solver
from rl4co.solvers._cancellation import is_cancelled
from rl4co.solvers._geometry import Geometry, as_actions, geometries
from rl4co.solvers._threads import RecordCost, map_in_threads
from rl4co.solvers.formulations import RoutingFormulation
from rl4co.solvers.random_insertion import insert_randomly


@register_solver("glop", reads=RoutingFormulation)
def glop(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    policy: Any = None,
    revisers: Sequence[Reviser] = (),
    subprob_solver: str | None = None,
    n_samples: int = 1,
    seed: int = 0,
    progress: bool | None = None,
) -> Tensor:
    """Solutions by partition and revision.

    Args:
        env: Environment.
        td: State after reset, with coordinates.
        max_runtime: Seconds per instance. When they are over no further partition is tried, and
            the tours that are left stay those of insertion.
        num_procs: Instances solved at the same time, each in its own thread.
        policy: Partition policy for the CVRP, or a folder in which one was saved; None: a sweep.
        revisers: Revisers, the largest first.
        subprob_solver: How tours are solved: "insertion", "search", "ils", "lkh" or "reviser"
            (default: "reviser" with revisers, else "ils").
        n_samples: Partitions (or insertion tours) of each instance, of which the best counts.
        seed: Seed of partitions and insertions.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        Actions `[B, T]`.
    """
    check_at_least(1, n_samples=n_samples)
    if isinstance(policy, str | Path):
        policy = load_pretrained(policy)
    check_revisers(revisers)
    subprob_solver = subprob_solver or ("reviser" if revisers else "ils")
    if revisers and subprob_solver != "reviser":
        raise ConfigError(
            f"expected subprob_solver 'reviser' for revisers, got {subprob_solver!r}, which has no "
            "use for them; drop one of them"
        )
    solver = make_tour_solver(subprob_solver, revisers)
    instances = geometries(env, td, symmetric=True, planar=True)
    if policy is not None and instances[0].demand is None:
        raise ConfigError(
            f"expected no partition policy for {env.name}, whose solution is one tour, got "
            f"{type(policy).__name__}; drop it"
        )
    networks = [reviser.policy for reviser in revisers] + ([] if policy is None else [policy])

    def solve(job: tuple[int, Geometry], record_cost: RecordCost) -> np.ndarray:
        number, geometry = job
        rng, budget = np.random.default_rng((seed, number)), Budget(max_runtime, is_cancelled)
        best, shortest = None, np.inf
        for sample in range(n_samples):
            start = None if partitions is None else partitions[number, sample]
            visits = _solve_once(geometry, solver, rng, start, sample / n_samples, budget)
            cost = geometry.cost(visits)
            if best is None or cost < shortest:
                best, shortest = visits, cost
                record_cost(cost)
            if budget.is_over():
                break
        assert best is not None
        return best

    description = f"GLOP ({env.name})"
    jobs = list(enumerate(instances))
    with evaluating(*networks):
        partitions = None if policy is None else _learned_partitions(policy, td, n_samples, seed)
        solutions = map_in_threads(
            solve, jobs, num_procs, description=description, progress=progress
        )
    return as_actions(solutions, td)


def _solve_once(
    geometry: Geometry,
    solver: TourSolver,
    rng: np.random.Generator,
    start: np.ndarray | None,
    shift: float,
    budget: Budget,
) -> np.ndarray:
    """One partition, or one insertion tour, with its tours solved; `shift` rotates the sweep."""
    if geometry.demand is None:
        return TSPAdapter(geometry.points).solve(insert_randomly(geometry, rng), solver, budget)
    if start is None:
        first = int(shift * (len(geometry.points) - 1))
        start = join_routes(
            sweep_partition(geometry.points, geometry.demand, geometry.limit, first)
        )
    visits = np.trim_zeros(CVRPAdapter(geometry.points).solve(start, solver, budget))
    return visits if 0 in visits else np.append(visits, 0)


@torch.no_grad()
def _learned_partitions(policy: Any, td: TensorDictBase, n_samples: int, seed: int) -> np.ndarray:
    """Partitions drawn by a policy, `[B, S, T]`: vehicles are scarce, which makes them full."""
    env = CVRPMVCEnv(check_solution=False)
    state = _scarce_state(env, td)
    rng = derive_generator(seed, "partitions")
    parts = [
        policy.sample(state[b : b + 1], env, n_samples, policy.edge_weights(state[b : b + 1]), rng)
        for b in range(len(state))
    ]
    width = max(part.shape[-1] for part in parts)
    return torch.cat(
        [torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
    ).numpy()


def _scarce_state(env: CVRPMVCEnv, td: TensorDictBase) -> TensorDictBase:
    """The instances of a CVRP state, with scarce vehicles."""
    locs = td["locs"]
    return env.reset(
        TensorDict(
            {
                "locs": locs[:, 1:],
                "depot": locs[:, 0],
                "demand": td["demand"][:, 1:],
                "capacity": td["capacity"],
                "vehicle_capacity": td["vehicle_capacity"],
            },
            batch_size=td.batch_size,
        )
    )
