"""Adapters: what the sub-problems of a problem are, and how to solve them.

A solution is cut into closed tours, each is made anew by insertion and improved, and the tours are
put together again. The customers of a tour stay the same, and so do loads, prizes and penalties.
"""

from __future__ import annotations

import time

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tensordict import TensorDict

from rl4co.core.errors import ConfigError, UnknownNameError
from rl4co.envs.routing.tsp.env import TSPEnv
from rl4co.envs.routing.tsp.insertion import insert_shuffled
from rl4co.envs.routing.tsp.iterated_search import iterate_tour
from rl4co.envs.routing.tsp.neighbor_search import improve_tours
from rl4co.models.zoo.glop.revision import Reviser, revise_tours

#: A custom solver: coordinates of P tours of one size `[P, n, 2]` → their orders `[P, n]`.
TourFunction = Callable[[torch.Tensor], torch.Tensor]
#: Kicks of the iterated local search per node.
KICKS_PER_NODE = 40


class Budget:
    """Time for tours: solvers look at it between tours and now and then within one.

    Args:
        seconds: How long they may take; None: as long as they need.
        is_stopped: Asked whether to end soon.
    """

    def __init__(
        self, seconds: float | None = None, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds
        self._is_stopped = is_stopped

    def seconds_left(self) -> float | None:
        """Seconds until the end; None: there is no end."""
        return None if self._end is None else max(self._end - time.perf_counter(), 0.0)

    def is_over(self) -> bool:
        """Whether to end now."""
        return self.seconds_left() == 0.0 or self._is_stopped()


#: Points of each tour in its order, and the time for all of them → new orders of their nodes. When
#: time is over, the tours that are left stay as they are.
TourSolver = Callable[[Sequence[np.ndarray], Budget], list[np.ndarray]]


def _keep(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
    return [np.arange(len(points)) for points in tours]


def _search(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
    return [
        order if budget.is_over() else improve_tours(points[None], order[None])[0]
        for points, order in zip(tours, _keep(tours, budget), strict=True)
    ]


def _iterate(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
    return [
        order
        if budget.is_over()
        else iterate_tour(
            points,
            order,
            max_kicks=KICKS_PER_NODE * len(points),
            max_runtime=budget.seconds_left(),
            is_stopped=budget.is_over,
        )
        for points, order in zip(tours, _keep(tours, budget), strict=True)
    ]


def _lkh(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
    env, orders = TSPEnv(), _keep(tours, budget)
    for number, points in enumerate(tours):
        if budget.is_over():
            break
        locs = torch.from_numpy(np.asarray(points, dtype=np.float32)).unsqueeze(0)
        remaining = budget.seconds_left()
        limit: dict[str, Any] = {} if remaining is None else {"max_runtime": remaining}
        actions, _ = env.solve(
            TensorDict({"locs": locs}, [1]), solver="lkh", progress=False, runs=1, **limit
        )
        orders[number] = actions[0].numpy()
    return orders


#: What is done to tours made by insertion, by name; "reviser" needs revisers.
TOUR_SOLVERS: dict[str, TourSolver] = {
    "insertion": _keep,
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

        def revise(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
            return revise_tours(tours, revisers, is_over=budget.is_over)

        return revise
    if name not in TOUR_SOLVERS:
        raise UnknownNameError("sub-solver", name, [*TOUR_SOLVERS, "reviser"])
    return TOUR_SOLVERS[name]


def _by_function(function: TourFunction) -> TourSolver:
    """A solver that asks a function of tensors once for all tours of a size."""

    def solve(tours: Sequence[np.ndarray], budget: Budget) -> list[np.ndarray]:
        orders = _keep(tours, budget)
        for size in sorted({len(points) for points in tours}):
            if budget.is_over():
                break
            rows = [row for row, points in enumerate(tours) if len(points) == size]
            points = torch.from_numpy(np.stack([tours[row] for row in rows])).float()  # [P, n, 2]
            permutations = torch.as_tensor(function(points)).cpu()
            if permutations.shape != points.shape[:2] or not bool(
                (permutations.sort(-1).values == torch.arange(size)).all()
            ):
                raise ConfigError(
                    f"expected orders of {size} nodes for each of {len(rows)} tours from "
                    f"subprob_solver, got {list(permutations.shape)}; return a permutation for each"
                )
            for row, order in zip(rows, permutations.numpy(), strict=True):
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

    def order(self, route: np.ndarray) -> np.ndarray:
        """The nodes of a route by random insertion.

        The order of insertion depends on which customers it has, not on how they were visited: a
        partition has one cost.
        """
        nodes = np.append(route[0], np.sort(route[1:]))
        return nodes[insert_shuffled(self.points[nodes])]

    def solve(
        self, actions: np.ndarray, solver: TourSolver, budget: Budget | None = None
    ) -> np.ndarray:
        """The solution with each of its routes solved anew: `[T]` → `[T']`.

        Args:
            actions: The solution.
            solver: Solves the routes.
            budget: Time for all of them; None: as much as they need.
        """
        routes = [self.order(route) for route in self.decompose(actions)]
        orders = solver([self.points[route] for route in routes], budget or Budget())
        return self.compose([_from_depot(r, o) for r, o in zip(routes, orders, strict=True)])


class PCTSPAdapter(CVRPAdapter):
    """The customers that are visited make one tour."""


class TSPAdapter(CVRPAdapter):
    """The tour is the one sub-problem; revisers cut it further."""

    def decompose(self, actions: np.ndarray) -> list[np.ndarray]:
        """The tour itself."""
        return [actions]

    def compose(self, routes: Sequence[np.ndarray]) -> np.ndarray:
        """The tour itself."""
        return routes[0]

    def order(self, route: np.ndarray) -> np.ndarray:
        """The tour itself."""
        return route


def _from_depot(route: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The nodes of a closed tour in a new order, from its first node on."""
    return route[np.roll(order, -int((order == 0).argmax()))]
