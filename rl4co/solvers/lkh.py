"""LKH, the Lin-Kernighan-Helsgaun heuristic (Helsgaun, 2000), through the package `elkai`.

On the instance sizes of the paper it finds optimal tours in nearly all cases. Open paths become
tours through one more node, which is next to both of their ends and far from all other nodes.

LKH computes with integers, so distances are shifted and scaled to 0 ... 1,000,000 and rounded:
tours whose lengths differ by less than about one millionth of the largest distance per edge are the
same to it. The costs returned are exact: they come from the environment.
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
from rl4co.solvers._routing import refuse_dense

#: Largest integer distance. LKH multiplies by its precision (100) and adds node penalties in 32-bit
#: integers; beyond about 10 million that overflows and aborts the process.
RESOLUTION = 1_000_000
#: Distance to the additional node of an open path, which must not be worth it.
FAR = 9 * RESOLUTION


@register_solver("lkh", problems=("tsp", "tsp_dense", "atsp", "shpp"), priority=EXACT)
def lkh(
    env: RL4COEnvBase,
    td: TensorDictBase,
    *,
    max_runtime: float,
    num_procs: int,
    runs: int = 10,
    seed: int = 1,
    progress: bool | None = None,
    initial: Tensor | None = None,
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
        initial: Tours or paths with which each run begins `[B, N]`; the result is not worse.

    Returns:
        Tours `[B, N]`, each starting at node 0 (or like the initial one, if that is not improved).
    """
    if find_spec("elkai") is None:
        raise MissingDependencyError("elkai", "solvers")
    if runs < 1:
        raise ConfigError(f"expected at least 1 run, got {runs}")
    refuse_dense(env, td, "LKH")
    # Paths between given ends have a last node in their state.
    is_open = "last_node" in td.keys()
    matrices = path_distances(td) if is_open else integer_distances(td)
    verb = "solve" if initial is None else "improve"
    starts = [None] * len(matrices) if initial is None else initial.tolist()
    tours = map_instances(
        f"rl4co.solvers._lkh_worker:{verb}_{'path' if is_open else 'tour'}",
        [
            (matrix.tolist(), runs, seed, max_runtime, start)
            for matrix, start in zip(matrices, starts, strict=True)
        ],
        num_procs,
        description=f"LKH ({env.name})",
        progress=progress,
    )
    found = torch.tensor(tours, dtype=torch.int64, device=td.device)
    return found if initial is None else _better(env, td, found, initial)


def _better(env: RL4COEnvBase, td: TensorDictBase, found: Tensor, initial: Tensor) -> Tensor:
    """Of each instance the shorter tour `[B, N]`: LKH's lengths are rounded."""
    rewards = (env.get_reward(td, tours, check_solution=False) for tours in (found, initial))
    improved = torch.gt(*rewards)  # [B]
    return torch.where(improved.unsqueeze(-1), found, initial.to(found.device))


def integer_distances(td: TensorDictBase, resolution: int = RESOLUTION) -> Tensor:
    """Distances of each instance, shifted and scaled to 0 ... `resolution`: `[B, N, N]`.

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
    scaled = ((distances - low) / extent * resolution).round().long()
    return torch.where(inside, scaled, scaled.new_zeros(()))


def path_distances(td: TensorDictBase) -> Tensor:
    """Distances with one more node, behind the last node and before the first: `[B, M, M]`.

    A tour that uses other ways to and from this node, of which there are M = N + 1, pays
    :data:`FAR` for each. In the plane no path is longer than one between other ends by more than
    twice the largest distance for each end, so this is enough; with any matrix, a lower resolution
    sees to it.
    """
    num_nodes, has_matrix = td["action_mask"].shape[-1], "cost_matrix" in td.keys()
    coarse = FAR // (num_nodes + 1) if has_matrix else RESOLUTION
    inner = integer_distances(td, min(RESOLUTION, coarse))
    distances = inner.new_full((len(inner), num_nodes + 1, num_nodes + 1), FAR)
    distances[:, :-1, :-1] = inner
    distances[:, -1, -1] = 0
    distances[:, num_nodes - 1, -1] = distances[:, -1, 0] = 0
    if not has_matrix:
        # Symmetric distances stay symmetric; the path may come out backwards.
        distances[:, 0, -1] = distances[:, -1, num_nodes - 1] = 0
    return distances
