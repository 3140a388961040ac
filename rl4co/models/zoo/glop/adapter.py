"""Adapters: what the sub-problems of a problem are, and how to solve them.

A solution is cut into closed tours, each is solved anew as a TSP, and the tours are put together
again. The customers of a tour stay the same, so loads, prizes and penalties do as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs.routing.tsp.env import TSPEnv
from rl4co.envs.routing.tsp.insertion import insert_in_order
from rl4co.envs.routing.tsp.iterated_search import iterate_tour
from rl4co.envs.routing.tsp.neighbor_search import improve_tours
from rl4co.models.zoo.glop.revision import Reviser, revise_tours

#: Points of each tour, depot first → orders of its nodes.
TourSolver = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
#: A solver of one's own: coordinates of P tours of one size `[P, n, 2]` → their orders `[P, n]`.
TourFunction = Callable[[torch.Tensor], torch.Tensor]
#: Kicks of the iterated local search per node.
KICKS_PER_NODE = 40


def _insert(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [insert_in_order(points, np.arange(len(points))) for points in tours]


def _search(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [
        improve_tours(points[None], order[None])[0]
        for points, order in zip(tours, _insert(tours), strict=True)
    ]


def _iterate(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [
        iterate_tour(points, order, max_kicks=KICKS_PER_NODE * len(points))
        for points, order in zip(tours, _insert(tours), strict=True)
    ]


def _lkh(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
    env, orders = TSPEnv(), []
    for points in tours:
        locs = torch.from_numpy(np.asarray(points, dtype=np.float32)).unsqueeze(0)
        actions, _ = env.solve(
            TensorDict({"locs": locs}, [1]), solver="lkh", progress=False, runs=1
        )
        orders.append(actions[0].numpy())
    return orders


#: Solvers of tours by name; "reviser" is insertion followed by revisers.
TOUR_SOLVERS: dict[str, TourSolver] = {
    "insertion": _insert,
    "search": _search,
    "ils": _iterate,
    "lkh": _lkh,
}


def make_tour_solver(name: str | TourFunction, revisers: Sequence[Reviser] = ()) -> TourSolver:
    """The solver of tours called `name`: insertion, search, ils, lkh or reviser; or a function."""
    if not isinstance(name, str):
        return _by_function(name)
    if name == "reviser":
        if not revisers:
            raise ConfigError("expected revisers for the sub-solver 'reviser', got none")

        def revise(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
            orders = _insert(tours)
            ordered = [points[order] for points, order in zip(tours, orders, strict=True)]
            revised = revise_tours(ordered, revisers)
            return [order[new] for order, new in zip(orders, revised, strict=True)]

        return revise
    if name not in TOUR_SOLVERS:
        raise UnknownNameError("sub-solver", name, [*TOUR_SOLVERS, "reviser"])
    return TOUR_SOLVERS[name]


def _by_function(function: TourFunction) -> TourSolver:
    """A solver that asks a function of tensors once for all tours of a size."""

    def solve(tours: Sequence[np.ndarray]) -> list[np.ndarray]:
        orders: list[np.ndarray] = [np.empty(0, int)] * len(tours)
        for size in sorted({len(points) for points in tours}):
            rows = [row for row, points in enumerate(tours) if len(points) == size]
            points = torch.from_numpy(np.stack([tours[row] for row in rows])).float()  # [P, n, 2]
            found = torch.as_tensor(function(points)).cpu()
            if found.shape != points.shape[:2] or not bool(
                (found.sort(-1).values == torch.arange(size)).all()
            ):
                raise ConfigError(
                    f"expected orders of {size} nodes for each of {len(rows)} tours from "
                    f"subprob_solver, got {list(found.shape)}; return a permutation for each"
                )
            for row, order in zip(rows, found.numpy(), strict=True):
                orders[row] = order
        return orders

    return solve


class CVRPAdapter:
    """Routes from and to the depot are the sub-problems.

    Args:
        points: Coordinates `[N, 2]`, the depot first.
    """

    def __init__(self, points: np.ndarray) -> None:
        self.points = np.asarray(points, dtype=np.float64)

    def decompose(self, actions: np.ndarray) -> list[np.ndarray]:
        """Nodes of each route, depot first: `[T]` → `[L + 1]` each."""
        cuts = np.flatnonzero(actions == 0)
        parts = np.split(actions, cuts)
        routes = [part[part != 0] for part in parts]
        return [np.append(0, route) for route in routes if len(route)]

    def compose(self, routes: Sequence[np.ndarray]) -> np.ndarray:
        """Routes one after the other, each followed by the depot."""
        return np.concatenate([np.append(route[1:], 0) for route in routes] or [np.zeros(1, int)])

    def solve(self, actions: np.ndarray, solver: TourSolver) -> np.ndarray:
        """The solution with each of its routes solved anew: `[T]` → `[T']`."""
        routes = self.decompose(actions)
        orders = solver([self.points[route] for route in routes])
        return self.compose([_from_depot(r, o) for r, o in zip(routes, orders, strict=True)])


class PCTSPAdapter(CVRPAdapter):
    """The customers that are visited make one tour."""


class TSPAdapter(CVRPAdapter):
    """The whole tour is the one sub-problem; revisers cut it further."""

    def decompose(self, actions: np.ndarray) -> list[np.ndarray]:
        """The tour itself."""
        return [actions]

    def compose(self, routes: Sequence[np.ndarray]) -> np.ndarray:
        """The tour itself."""
        return routes[0]


def _from_depot(route: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The nodes of a closed tour in a new order, from its first node on."""
    return route[np.roll(order, -int((order == 0).argmax()))]
