"""Routes of few vehicles sampled edge by edge in compiled loops.

They repeat the rules of :class:`CVRPMVCEnv`: as in the CVRP, but a vehicle returns only if the
remaining ones can carry the remaining demand, or if no customer fits; `ANTS` names the repeated
methods.
"""

from __future__ import annotations

import numpy as np

from rl4co.envs.routing._node_queue import Flags, Floats, Ints
from rl4co.envs.routing.cvrp import ants as cvrp_ants
from rl4co.kernels import compiled
from rl4co.kernels.mirror import Mirror

ANTS = Mirror(
    "cvrpmvc",
    methods=("advance", "_transition", "_action_mask", "_forbidden", "_may_return"),
    fresh={**cvrp_ants.ANTS.fresh, "vehicles_used": 1},
    fingerprint="fa588848d5103bd4",
)


def draw_scarce_routes(
    points: np.ndarray,
    demand: np.ndarray,
    limit: np.ndarray,
    capacity: np.ndarray,
    vehicles: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    hub: np.ndarray,
    draws: np.ndarray,
) -> Ints:
    """Solutions that follow edges with probabilities proportional to weights.

    Where no candidate is allowed, the nearest customer that fits is next.

    Args:
        points: Coordinates.
        demand: Demand of the nodes, in float32, as the environment compares loads.
        limit: Capacity of a vehicle, with the environment's slack.
        capacity: Capacity without slack.
        vehicles: Number of vehicles, with the environment's slack.
        targets: Ends of the candidate edges of customers, the depot among them.
        weights: Their weights.
        hub: Weights of the edges from the depot to the customers.
        draws: Uniform numbers in [0, 1).

    Shapes:
        points `[B, N, 2]`, demand `[B, N]`, limit, capacity and vehicles `[B]`, targets and weights
        `[B, N - 1, K]`, hub `[B, N - 1]`, draws `[B, A, T]` → `[B, A, T']`, padded with zeros
    """
    routes = np.zeros(draws.shape, dtype=np.int64)
    longest = 0
    for b in range(len(draws)):
        for a in range(draws.shape[1]):
            used = _draw(
                points[b], demand[b], limit[b], capacity[b], vehicles[b], targets[b], weights[b],
                hub[b], draws[b, a], routes[b, a],
            )  # fmt: skip
            longest = max(longest, used)
    return np.ascontiguousarray(routes[:, :, :longest])


@compiled
def _draw(
    points: Floats,
    demand: Floats,
    limit: float,
    capacity: float,
    vehicles: float,
    targets: Ints,
    weights: Floats,
    hub: Floats,
    draws: Floats,
    out: Ints,
) -> int:
    size = demand.size
    visited = np.zeros(size, np.bool_)
    node, left, step, used = 0, size - 1, 0, 1
    load = demand[0] * 0
    remaining = demand[0] * 0
    for other in range(1, size):
        remaining = remaining + demand[other]
    while left > 0:
        if node == 0:
            following = cvrp_ants.leave_depot(demand, limit, hub, visited, draws[step])
        else:
            may_return = remaining <= (vehicles - used) * capacity
            following = _next(
                points, demand, limit, targets[node - 1], weights[node - 1], visited, load, node,
                may_return, draws[step],
            )  # fmt: skip
        out[step] = following
        step += 1
        if following == 0:
            load = demand[0] * 0
            used += 1
        else:
            visited[following] = True
            load = load + demand[following]
            remaining = remaining - demand[following]
            left -= 1
        node = following
    # An episode ends when the depot, too, was visited.
    return step if used > 1 else step + 1


@compiled
def _next(
    points: Floats,
    demand: Floats,
    limit: float,
    targets: Ints,
    weights: Floats,
    visited: Flags,
    load: float,
    node: int,
    may_return: bool,
    draw: float,
) -> int:
    """The next customer, or the depot."""
    total = 0.0
    for k in range(targets.size):
        other = targets[k]
        allowed = (
            may_return if other == 0 else (not visited[other] and demand[other] + load <= limit)
        )
        if allowed:
            total += weights[k]
    if total > 0.0:
        threshold, chosen = draw * total, 0
        for k in range(targets.size):
            other = targets[k]
            allowed = (
                may_return if other == 0 else (not visited[other] and demand[other] + load <= limit)
            )
            if allowed and weights[k] > 0.0:
                chosen = other
                threshold -= weights[k]
                if threshold < 0.0:
                    break
        return chosen
    best, chosen = np.inf, 0
    for other in range(1, demand.size):
        if not visited[other] and demand[other] + load <= limit:
            x = points[other, 0] - points[node, 0]
            y = points[other, 1] - points[node, 1]
            if x * x + y * y < best:
                best, chosen = x * x + y * y, other
    return chosen
