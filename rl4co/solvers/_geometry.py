"""Instances of the TSP and the CVRP as arrays, without a matrix of all distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from scipy.spatial.distance import pdist
from tensordict import TensorDictBase
from torch import Tensor

from rl4co.core.errors import UnsupportedError
from rl4co.envs.base import RL4COEnvBase
from rl4co.solvers.formulations import RoutingFormulation, formulation_of

#: Share of the tolerance on the capacity that heuristics use; the remainder is for rounding.
SHARE = 0.5
#: Least correlation of a matrix with the distances of coordinates that stand for it. Rounded and
#: geographical distances of TSPLIB have 0.8 and more, random ones nearly 0.
LEAST_CORRELATION = 0.5


class Geometry(NamedTuple):
    """One instance.

    Attributes:
        points: Coordinates `[N, 2]`, the depot first; zeros if there is a matrix only.
        matrix: Distances `[N, N]` of instances that have them, else None.
        demand: Demands `[N]` of customers; None for tours.
        limit: Capacity of a vehicle.
    """

    points: np.ndarray
    matrix: np.ndarray | None = None
    demand: np.ndarray | None = None
    limit: float = np.inf

    def cost(self, visits: np.ndarray) -> float:
        """Length of a closed tour; of routes from and to the depot, if there are demands."""
        nodes = visits if self.demand is None else np.append(visits, 0)
        here, there = nodes, np.roll(nodes, -1)
        if self.matrix is not None:
            return float(np.where(here == there, 0.0, self.matrix[here, there]).sum())
        return float(np.hypot(*(self.points[here] - self.points[there]).T).sum())


def is_plain(env: RL4COEnvBase) -> bool:
    """Whether solutions are limited by nothing but, perhaps, the capacity of vehicles."""
    return formulation_of(env, RoutingFormulation).is_plain


def geometries(
    env: RL4COEnvBase, td: TensorDictBase, symmetric: bool = False, planar: bool = False
) -> list[Geometry]:
    """The instances of a batch.

    Args:
        env: Environment.
        td: State after reset.
        symmetric: Whether to reject matrices that are not symmetric.
        planar: Whether to reject matrices that are unrelated to the coordinates, or have none.
    """
    if not is_plain(env):
        raise UnsupportedError(
            f"expected tours, or routes limited by a capacity alone, got {env.name}; use its "
            "default solver, or insertion"
        )
    arrays = {key: _array(td, key) for key in ("locs", "cost_matrix", "demand", "vehicle_capacity")}
    matrix, demand = arrays["cost_matrix"], arrays["demand"]
    if matrix is not None and symmetric and not np.allclose(matrix, matrix.swapaxes(1, 2)):
        raise UnsupportedError(
            f"expected {env.name} instances with symmetric distances, got a matrix that is not; "
            "use local_search, insertion or lkh"
        )
    if planar and matrix is not None:
        _require_coordinates(env, arrays["locs"], matrix)
    batch, size = td["action_mask"].shape
    points = np.zeros((batch, size, 2)) if arrays["locs"] is None else arrays["locs"]
    limits = np.full(batch, np.inf)
    if demand is not None and arrays["vehicle_capacity"] is not None:
        slack = 1.0 + SHARE * getattr(env, "capacity_tolerance", 0.0)
        limits = arrays["vehicle_capacity"][:, 0] * slack
    return [
        Geometry(
            points[b],
            None if matrix is None else matrix[b],
            None if demand is None else demand[b],
            float(limits[b]),
        )
        for b in range(batch)
    ]


def _require_coordinates(env: RL4COEnvBase, locs: np.ndarray | None, matrix: np.ndarray) -> None:
    """Raises for matrices `[B, N, N]` that are unrelated to the coordinates `[B, N, 2]`."""
    if locs is None:
        got = "a matrix only"
    elif all(map(_follows, locs, matrix)):
        return
    else:
        got = "a matrix of other distances than theirs"
    raise UnsupportedError(
        f"expected {env.name} instances with coordinates for a solver that looks at these alone, "
        f"got {got}; use ils, insertion or local_search"
    )


def _follows(points: np.ndarray, matrix: np.ndarray) -> bool:
    """Whether distances rise with those of the points; equal ones are not informative."""
    above = np.triu_indices(len(points), 1)
    straight, lengths = pdist(points), matrix[above]
    if min(len(lengths), np.ptp(straight), np.ptp(lengths)) <= 0:
        return True
    return bool(np.corrcoef(straight, lengths)[0, 1] >= LEAST_CORRELATION)


def _array(td: TensorDictBase, key: str) -> np.ndarray | None:
    value: Tensor | None = td.get(key, None)
    return None if value is None else value.double().cpu().numpy()


def as_actions(solutions: list[np.ndarray], td: TensorDictBase) -> Tensor:
    """Solutions as actions `[B, T]`, padded with the depot; a single route returns to it."""
    has_depot = "demand" in td.keys()
    size = td["action_mask"].shape[-1]
    width = max(size, *(len(visits) for visits in solutions)) if has_depot else size
    actions = torch.zeros(len(solutions), width, dtype=torch.int64)
    for row, visits in enumerate(solutions):
        actions[row, : len(visits)] = torch.from_numpy(np.asarray(visits, dtype=np.int64))
    return actions.to(td.device or "cpu")
