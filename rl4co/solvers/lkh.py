"""LKH, the Lin-Kernighan-Helsgaun heuristic (Helsgaun, 2000), through the package `elkai`.

On the instance sizes of the paper it finds optimal tours in nearly all cases. LKH computes with
integers, so distances are shifted and scaled to 0 ... 1,000,000 and rounded: tours whose lengths
differ by less than about one millionth of the largest distance per edge are the same to it. The
costs returned are exact: they come from the environment.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import ConfigError, MissingDependencyError
from rl4co.core.ops import get_distance_matrix
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers._base import EXACT, register_solver
from rl4co.solvers._parallel import map_instances

#: Largest integer distance. LKH multiplies by its precision (100) and adds node penalties in 32-bit
#: integers; beyond about 10 million that overflows and aborts the process.
RESOLUTION = 1_000_000


@register_solver("lkh", problems=("tsp",), priority=EXACT)
def lkh(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    runs: int = 10,
    seed: int = 1,
    progress: bool | None = None,
) -> Tensor:
    """Tours by LKH. The same arguments give the same tours unless the time limit strikes.

    Args:
        env: Environment.
        td: State after reset, with coordinates or a cost matrix (symmetric or not).
        max_runtime: Seconds per instance after which LKH begins no further run.
        num_procs: Instances solved at the same time, each in its own process.
        runs: Independent runs of LKH, of which the best counts.
        seed: Seed of LKH.
        progress: Whether to show a progress bar; None: if stderr is a terminal.

    Returns:
        Tours `[B, N]`, each starting at node 0.
    """
    if find_spec("elkai") is None:
        raise MissingDependencyError("elkai", "solvers")
    if runs < 1:
        raise ConfigError(f"expected at least 1 run, got {runs}")
    jobs = [(matrix.tolist(), runs, seed, max_runtime) for matrix in integer_distances(td)]
    tours = map_instances(
        "rl4co.solvers._lkh_worker:solve_tour",
        jobs,
        num_procs,
        description=f"LKH ({env.name})",
        progress=progress,
    )
    return torch.tensor(tours, dtype=torch.int64, device=td.device)


def integer_distances(td: TensorDictBase) -> Tensor:
    """Distances of each instance, shifted and scaled to 0 ... :data:`RESOLUTION`: `[B, N, N]`.

    Adding a constant to every edge adds N times that constant to every tour, so the best tour
    stays the best.
    """
    matrix = td.get("cost_matrix", None)
    distances = get_distance_matrix(td["locs"].double()) if matrix is None else matrix.double()
    inside = ~torch.eye(distances.shape[-1], dtype=torch.bool, device=distances.device)  # [N, N]
    # The diagonal is never travelled and may hold anything, infinity included.
    distances = torch.where(inside, distances, distances.new_zeros(()))
    low = distances.amin((-2, -1), keepdim=True)  # [B, 1, 1]
    extent = (distances.amax((-2, -1), keepdim=True) - low).clamp_min(
        torch.finfo(torch.float64).tiny
    )
    scaled = ((distances - low) / extent * RESOLUTION).round().long()
    return torch.where(inside, scaled, scaled.new_zeros(()))
