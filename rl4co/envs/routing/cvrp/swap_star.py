"""SWAP* (Vidal, 2022): exchange two customers of two routes, each to its best position.

All pairs of customers are compared in time proportional to their number, because the three best
positions of every customer in the other route are computed first: at most two of them touch the
customer that leaves.

Paper: https://arxiv.org/abs/2012.10384
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4co.envs.routing._node_queue import Floats, Ints
from rl4co.envs.routing.tsp.cycle import MIN_SHARE, distance
from rl4co.kernels import compiled


@compiled
def best_swap_star(
    f: Any, r: int, s: int, costs: Floats, places: Ints
) -> tuple[float, int, int, int, int]:
    """Best exchange of customers a of route r and b of route s.

    Args:
        f: A fleet, see :mod:`rl4co.envs.routing.cvrp.neighbor_search`.
        r: First route.
        s: Second route.
        costs: Scratch `[2, N, 3]`.
        places: Scratch `[2, N, 3]`.

    Returns:
        Gain (0: none), a, b, and the nodes behind which they go; where that is the customer that
        leaves, its own place is meant.
    """
    size, limit = len(f.points), f.limit[0]
    _note_places(f, r, s, costs[0], places[0])
    _note_places(f, s, r, costs[1], places[1])
    best = 0.0
    first, second, first_place, second_place = 0, 0, 0, 0
    a = f.after[size + r]
    while a < size:
        freed_a = _freed(f, a)
        b = f.after[size + s]
        while b < size:
            shift = f.demand[b] - f.demand[a]
            if f.load[r] + shift <= limit and f.load[s] - shift <= limit:
                freed = freed_a + _freed(f, b)
                if freed > best:
                    cost_a, place_a = _insertion(f, a, b, costs[0, a], places[0, a])
                    cost_b, place_b = _insertion(f, b, a, costs[1, b], places[1, b])
                    gain = freed - cost_a - cost_b
                    if gain > best and gain > MIN_SHARE * (freed + cost_a + cost_b):
                        best, first, second = gain, a, b
                        first_place, second_place = place_a, place_b
            b = f.after[b]
        a = f.after[a]
    return best, first, second, first_place, second_place


@compiled
def _far(f: Any, i: int, j: int) -> float:
    size = len(f.points)
    return distance(f.points, f.matrix, i if i < size else 0, j if j < size else 0)


@compiled
def _freed(f: Any, node: int) -> float:
    """How much shorter a route is without a customer."""
    p, x = f.before[node], f.after[node]
    return _far(f, p, node) + _far(f, node, x) - _far(f, p, x)


@compiled
def _note_places(f: Any, r: int, s: int, costs: Floats, places: Ints) -> None:
    """The three best positions of each customer of route r in route s."""
    size = len(f.points)
    node = f.after[size + r]
    while node < size:
        costs[node] = np.inf
        places[node] = -1
        place = size + s
        while True:
            following = f.after[place]
            added = _far(f, place, node) + _far(f, node, following) - _far(f, place, following)
            if added < costs[node, 2]:
                slot = 2
                while slot > 0 and added < costs[node, slot - 1]:
                    costs[node, slot] = costs[node, slot - 1]
                    places[node, slot] = places[node, slot - 1]
                    slot -= 1
                costs[node, slot] = added
                places[node, slot] = place
            place = following
            if place == size + s:
                break
        node = f.after[node]


@compiled
def _insertion(f: Any, node: int, leaving: int, costs: Floats, places: Ints) -> tuple[float, int]:
    """Cheapest position of a customer in a route that another one leaves."""
    p, x = f.before[leaving], f.after[leaving]
    best = _far(f, p, node) + _far(f, node, x) - _far(f, p, x)
    place = leaving
    for slot in range(3):
        if places[slot] >= 0 and places[slot] != leaving and places[slot] != p:
            if costs[slot] < best:
                best, place = costs[slot], places[slot]
            break
    return best, place
