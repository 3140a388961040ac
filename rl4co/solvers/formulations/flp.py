"""Facility location as a mixed-integer program, with the nearest locations of each customer only.

$$\\min \\sum_{ij} c_{ij} x_{ij} + \\sum_j r_j o_j \\quad \\text{with} \\quad
  \\sum_i x_{ij} + o_j = 1, \\quad x_{ij} \\le y_i, \\quad \\sum_i y_i = k, \\quad
  y_i \\in \\{0, 1\\}$$

where i runs over the K nearest locations of customer j, and $o_j$ stands for all others, at the
cost $r_j$ of the nearest of them. So the cost is a lower bound on that of the full problem, and
equal to it if no $o_j$ is used. Otherwise K is doubled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl4co.core.registry import FORMULATIONS
from rl4co.solvers._mip_problem import Floats, MixedIntegerProblem, Rows
from rl4co.solvers.formulations._mip import Arrays, MIPFormulation

#: Nearest locations of each customer in the first attempt, unless its facility is further away.
NUM_NEAREST = 30
#: A variable this close to 0 or 1 is that.
INTEGRALITY = 1e-5


@FORMULATIONS.register("flp")
class FLPFormulation(MIPFormulation):
    """Each customer and its nearest locations."""

    def build(self, instance: Arrays, first: Sequence[int], attempt: int) -> MixedIntegerProblem:
        """The problem of an instance, with more locations per customer in each attempt."""
        costs = instance["orig_distances"].astype(np.float64)  # [N, N], facility to customer
        size, wanted = len(costs), int(instance["to_choose"])
        chosen = np.array(first[:wanted])
        nearest = _nearest(costs, chosen, attempt)  # [K, N]
        depth = len(nearest)
        customers = np.arange(size)
        serve = size + np.arange(depth * size).reshape(depth, size)  # variables x, behind the y
        beyond = size + depth * size + customers  # variables o
        cost_beyond = _cost_beyond(costs, depth)
        rows = Rows()
        rows.add([*serve, *([] if cost_beyond is None else [beyond])], [1.0], 1.0, 1.0)
        rows.add([serve.ravel(), nearest.ravel()], [1.0, -1.0], upper=0.0)
        rows.add([np.full(1, y) for y in range(size)], [1.0], wanted, wanted)
        parts = [np.zeros(size), costs[nearest, customers].ravel()]
        parts += [] if cost_beyond is None else [cost_beyond]
        cost = np.concatenate(parts)
        is_integer = np.arange(len(cost)) < size
        return rows.problem(cost, is_integer, _guess(costs, chosen, nearest, len(cost)))

    def decode(self, instance: Arrays, values: Floats) -> list[int]:
        """The locations whose variable y is one."""
        size, wanted = len(instance["orig_distances"]), int(instance["to_choose"])
        return np.argsort(-values[:size], kind="stable")[:wanted].tolist()

    def is_complete(self, instance: Arrays, problem: MixedIntegerProblem, values: Floats) -> bool:
        """Whether every customer is served by one of its nearest locations."""
        size = len(instance["orig_distances"])
        full_size = size + size * size  # the problem with all locations has no variables o
        return len(values) == full_size or bool((values[-size:] < INTEGRALITY).all())


def _nearest(costs: Floats, chosen: np.ndarray, attempt: int) -> np.ndarray:
    """The nearest locations of each customer `[K, N]`, at least those that serve it at first."""
    order = np.argsort(costs, axis=0, kind="stable")  # [N, N]
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(costs))[:, None], axis=0)
    furthest = int(rank[chosen].min(axis=0).max()) + 1
    return order[: min(max(NUM_NEAREST, furthest) * 2**attempt, len(costs))]


def _cost_beyond(costs: Floats, depth: int) -> Floats | None:
    """Cost of the nearest location that is not among the first `[N]`; None if all are."""
    return None if depth == len(costs) else np.sort(costs, axis=0)[depth]


def _guess(costs: Floats, chosen: np.ndarray, nearest: np.ndarray, num_values: int) -> Floats:
    """Values of a known solution."""
    size = len(costs)
    values = np.zeros(num_values)
    values[chosen] = 1.0
    server = chosen[costs[chosen].argmin(axis=0)]  # [N]
    place = (nearest == server).argmax(axis=0)
    values[size + place * size + np.arange(size)] = 1.0
    return values
