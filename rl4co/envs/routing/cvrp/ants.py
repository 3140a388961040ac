"""Routes sampled edge by edge in compiled loops that repeat the rules of :class:`CVRPEnv`.

Allowed are customers that fit the vehicle, and the depot unless the vehicle is there; `ANTS` names
the repeated methods.
"""

from __future__ import annotations

import numpy as np

from rl4co.envs.routing._node_queue import Flags, Floats, Ints
from rl4co.kernels import compiled, run_in_chunks
from rl4co.kernels.mirror import Mirror

ANTS = Mirror(
    "cvrp",
    methods=("advance", "_transition", "_action_mask", "_forbidden", "_may_return"),
    fresh={"i": 0, "used_capacity": 0, "visited": 0, "current_node": 0, "done": 0},
    fingerprint="e3089f3e64da1a0d",
)


def draw_routes(
    demand: np.ndarray,
    limit: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    hub: np.ndarray,
    draws: np.ndarray,
    threads: int = 1,
) -> Ints:
    """Solutions that follow edges with probabilities proportional to weights.

    Args:
        demand: Demand of the nodes, 0 at the depot, in float32, as the environment compares loads.
        limit: Capacity of a vehicle, with the environment's slack.
        targets: Ends of the candidate edges of customers, the depot among them.
        weights: Their weights.
        hub: Weights of the edges from the depot to the customers.
        draws: Uniform numbers in [0, 1).
        threads: Number of threads.

    Shapes:
        demand `[B, N]`, limit `[B]`, targets and weights `[B, N - 1, K]`, hub `[B, N - 1]`, draws
        `[B, A, T]` → `[B, A, T']`, padded with zeros
    """
    batch, ants, steps = draws.shape
    routes = np.zeros((batch, ants, steps), dtype=np.int64)
    lengths = np.zeros((batch, ants), dtype=np.int64)
    run_in_chunks(
        lambda rows: _draw_rows(
            demand, limit, targets, weights, hub, draws, routes, lengths, rows.start, rows.stop
        ),
        batch * ants,
        threads,
    )
    return np.ascontiguousarray(routes[:, :, : lengths.max()])


@compiled
def _draw_rows(
    demand: Floats,
    limit: Floats,
    targets: Ints,
    weights: Floats,
    hub: Floats,
    draws: Floats,
    routes: Ints,
    lengths: Ints,
    start: int,
    stop: int,
) -> None:
    ants, size = routes.shape[1], demand.shape[1]
    visited = np.empty(size, np.bool_)
    for row in range(start, stop):
        b, a = row // ants, row % ants
        visited[:] = False
        node, left, step, returned = 0, size - 1, 0, False
        load = demand[b, 0] * 0
        while left > 0:
            if node == 0:
                node = leave_depot(demand[b], limit[b], hub[b], visited, draws[b, a, step])
            else:
                node = _next_node(
                    demand[b], limit[b], targets[b, node - 1], weights[b, node - 1], visited,
                    load, draws[b, a, step],
                )  # fmt: skip
            routes[b, a, step] = node
            step += 1
            if node == 0:
                load, returned = demand[b, 0] * 0, True
            else:
                visited[node] = True
                load = load + demand[b, node]
                left -= 1
        # An episode ends when the depot, too, was visited.
        lengths[b, a] = step if returned else step + 1


@compiled
def leave_depot(demand: Floats, limit: float, hub: Floats, visited: Flags, draw: float) -> int:
    """The first customer of a route."""
    total = 0.0
    for node in range(1, demand.size):
        if not visited[node] and demand[node] <= limit:
            total += hub[node - 1]
    threshold, chosen = draw * total, 0
    for node in range(1, demand.size):
        if not visited[node] and demand[node] <= limit:
            if chosen == 0 or hub[node - 1] > 0.0:
                chosen = node
            threshold -= hub[node - 1]
            if threshold < 0.0:
                break
    return chosen


@compiled
def _next_node(
    demand: Floats,
    limit: float,
    targets: Ints,
    weights: Floats,
    visited: Flags,
    load: float,
    draw: float,
) -> int:
    """The next customer, or the depot."""
    total = 0.0
    for k in range(targets.size):
        node = targets[k]
        if node == 0 or (not visited[node] and demand[node] + load <= limit):
            total += weights[k]
    threshold, chosen = draw * total, 0
    for k in range(targets.size):
        node = targets[k]
        if weights[k] > 0.0 and (node == 0 or (not visited[node] and demand[node] + load <= limit)):
            chosen = node
            threshold -= weights[k]
            if threshold < 0.0:
                break
    return chosen
