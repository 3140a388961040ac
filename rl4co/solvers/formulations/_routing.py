"""Formulations of routing problems: lengths, loads, and the actions of routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from tensordict import TensorDictBase
from torch import Tensor

from rl4co.solvers._problem import Array, Route, RoutingProblem
from rl4co.solvers.formulations._base import Formulation

#: The state of one instance after reset, as float64 (or bool) arrays.
Instance = Mapping[str, Any]

#: Share of the tolerance of environments that formulations use; the remainder is for rounding.
SHARE = 0.5

#: Demands this close to whole numbers of units are whole numbers: float32 has about seven digits.
WHOLE = 1e-3


class RoutingFormulation(Formulation):
    """How one routing problem is handed to solvers. Depots are the first nodes of an instance."""

    kind = "routing formulation"
    #: Whether instances are tours, or routes limited by a capacity alone, and symmetric in general:
    #: the input of heuristics for large instances.
    is_plain: ClassVar[bool] = False

    def formulate(self, env: Any, instance: Instance) -> RoutingProblem:
        """The routing problem of an instance of the environment."""
        raise NotImplementedError

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """Actions of some routes, and the action with which a finished instance waits.

        Here: routes one after the other with the depot in between; a single one returns to it.
        """
        actions = chain_routes(routes)
        return actions if 0 in actions else [*actions, 0], 0

    def decode(self, env: Any, problem: RoutingProblem, actions: Sequence[int]) -> list[Route]:
        """Routes of a valid solution; here of vehicles of one kind, between visits of the depot."""
        return [Route(0, nodes) for nodes in split_at_depot(actions) if nodes]

    def count_depots(self, state: Mapping[str, Tensor]) -> int:
        """Number of depots of an instance."""
        return 1


def split_at_depot(actions: Sequence[int]) -> list[list[int]]:
    """The nodes before, between and after the visits of the depot."""
    parts: list[list[int]] = [[]]
    for node in actions:
        if node == 0:
            parts.append([])
        else:
            parts[-1].append(node)
    return parts


def chain_routes(routes: Sequence[Route]) -> list[int]:
    """Routes one after the other with the depot in between; the first begins there already."""
    actions: list[int] = []
    for route in routes:
        if route.nodes:
            actions += [0, *route.nodes]
    return actions[1:]


def instances_of(td: TensorDictBase) -> Iterator[Instance]:
    """The instances of a batch, one by one."""
    columns = {
        key: value.cpu().numpy() if value.dtype == torch.bool else value.double().cpu().numpy()
        for key, value in td.items()
    }
    for row in range(td.batch_size[0]):
        yield {key: column[row] for key, column in columns.items()}


def pad_actions(solutions: Sequence[tuple[list[int], int]]) -> Tensor:
    """Actions and the waiting action of each instance → `[B, T]`."""
    steps = max(len(actions) for actions, _ in solutions)
    rows = [actions + [wait] * (steps - len(actions)) for actions, wait in solutions]
    return torch.tensor(rows, dtype=torch.int64)


def lengths(instance: Instance, matrix: str = "cost_matrix") -> Array:
    """Lengths between all nodes `[N, N]`, by the matrix if there is one, else Euclidean."""
    if matrix in instance:
        table: Array = instance[matrix].copy()
    else:
        apart = instance["locs"][:, None] - instance["locs"][None, :]  # [N, N, 2]
        table = np.hypot(apart[..., 0], apart[..., 1])
    # The diagonal is never travelled and may hold anything.
    np.fill_diagonal(table, 0.0)
    return table


def whole_loads(
    demands: Sequence[Array], capacity: float, units: float, tolerance: float
) -> tuple[list[Array], float]:
    """Demands and capacity in whole units of the instance if they are such, else as they are.

    Args:
        demands: Arrays `[N]` in the units of `capacity`.
        capacity: Capacity of a vehicle.
        units: Original units of a capacity.
        tolerance: Relative slack of the environment on the capacity.
    """
    scaled = [demand / capacity * units for demand in demands]
    if all((abs(demand - np.rint(demand)) < WHOLE).all() for demand in scaled):
        return [np.rint(demand) for demand in scaled], float(np.floor(units + WHOLE))
    return list(demands), capacity * (1.0 + SHARE * tolerance)


def customers_of(num_nodes: int, num_depots: int = 1) -> tuple[int, ...]:
    """All nodes after the depots."""
    return tuple(range(num_depots, num_nodes))


def one_route(routes: Sequence[Route]) -> list[int]:
    """The customers of the only route, if there is one."""
    return [node for route in routes for node in route.nodes]


def orders_of(customers: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pickups are in the first half, their deliveries in the same order in the second."""
    half = len(customers) // 2
    return tuple(zip(customers[:half], customers[half:], strict=True))


class SelectiveFormulation(RoutingFormulation):
    """One tour from the depot that need not visit all customers."""

    def encode(
        self, env: Any, problem: RoutingProblem, routes: Sequence[Route]
    ) -> tuple[list[int], int]:
        """The chosen customers in turn, then the depot."""
        return [*one_route(routes), 0], 0
