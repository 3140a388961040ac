"""Loops of :mod:`rl4co.models.zoo.am.compiled_rollout`: the rules of a few problems.

Each solution is constructed to its end before the next one. A kernel keeps its state, says which
actions are allowed, sets the query (:func:`ask`) and takes a decision (:func:`decide`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4co.core.compiled import kernel
from rl4co.kernels import compiled as exact_kernel
from rl4co.models.zoo.am.compiled_decision import ask, decide, set_up

_ONE, _ZERO = np.float32(1), np.float32(0)


@kernel
def solve_tsp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`; given: allowed actions `[B, N]`."""
    desk, (mask,) = set_up(options, shared, found, room), given
    allowed, query, table, graph = room.allowed, room.query, shared.table, shared.graph
    batch, num_nodes = mask.shape
    blank = 2 * batch * num_nodes  # rows of the placeholder
    for row in range(start, stop):
        b = row // options.num_solutions
        for n in range(num_nodes):
            allowed[n] = mask[b, n]
        first, last, at = 0, 0, 2 * b * num_nodes
        found.steps[row] = num_nodes
        for t in range(num_nodes):
            one, other = (at + 2 * first, at + 2 * last + 1) if t else (blank, blank + 1)
            for i in range(query.size):
                query[i] = graph[b, i] + table[one, i] + table[other, i]
            last = decide(row, t, desk)
            if last < 0:
                found.steps[row] = -1
                break
            first = first if t else last
            allowed[last] = 0


@kernel
def solve_cvrp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Routes of rows `start`..`stop`; given: demand `[B, N]`, capacity, its limit `[B, 1]`."""
    desk, (demand, capacity, limit) = set_up(options, shared, found, room), given
    allowed, num_nodes = room.allowed, options.num_nodes
    visited = np.empty(num_nodes, np.bool_)
    for row in range(start, stop):
        b = row // options.num_solutions
        visited[:] = False
        used, last, left = _ZERO, 0, num_nodes
        found.steps[row] = -1
        for t in range(options.most):
            fits = False
            for n in range(1, num_nodes):
                free = not (visited[n] or demand[b, n] + used > limit[b, 0])
                allowed[n] = free
                fits |= free
            allowed[0] = last != 0 or not fits
            room.features[0] = _ONE - used / capacity[b, 0]
            ask(b, last, desk)
            last = decide(row, t, desk)
            used = used + demand[b, last] if last else _ZERO
            left -= not visited[last]
            visited[last] = True
            if not left:
                found.steps[row] = t + 1
                break


@kernel
def solve_pctsp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`; given: prizes `[B, N]`, required, enough `[B, 1]`."""
    desk, (prize, required, enough) = set_up(options, shared, found, room), given
    allowed = room.allowed
    for row in range(start, stop):
        b = row // options.num_solutions
        allowed[:] = 1
        total, last = _ZERO, 0
        found.steps[row] = -1
        for t in range(options.most):
            allowed[0] = total >= enough[b, 0] or t >= options.num_nodes - 1
            room.features[0] = max(required[b, 0] - total, _ZERO)
            ask(b, last, desk)
            last = decide(row, t, desk)
            total += prize[b, last]
            allowed[last] = 0
            if last == 0:
                found.steps[row] = t + 1
                break


@kernel
def solve_op(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`.

    Given: coordinates `[B, N, 2]`, lengths of legs `[B, N, N]` (or none), limit of the way to each
    node, way to it from the depot `[B, N]`, and the length to be used `[B, 1]`.
    """
    desk, (locs, matrix, limit, first, budget) = set_up(options, shared, found, room), given
    allowed, num_nodes = room.allowed, options.num_nodes
    visited, way = np.empty(num_nodes, np.bool_), np.empty(num_nodes, np.float32)
    for row in range(start, stop):
        b = row // options.num_solutions
        visited[:] = False
        way[:] = first[b]
        length, last = _ZERO, 0
        found.steps[row] = -1
        for t in range(options.most):
            for n in range(num_nodes):
                allowed[n] = n == 0 or not (visited[n] or way[n] > limit[b, n])
            room.features[0] = budget[b, 0] - length
            ask(b, last, desk)
            last = decide(row, t, desk)
            if last == 0:
                found.steps[row] = t + 1
                break
            visited[last] = True
            length = way[last]
            for n in range(num_nodes):
                way[n] = length + _leg(locs, matrix, b, last, n)


@exact_kernel
def _leg(locs: np.ndarray, matrix: np.ndarray, b: int, one: int, other: int) -> float:
    """Length of a leg, to the last bit that of the environment, whose mask compares it."""
    if matrix.shape[1]:
        return matrix[b, one, other]
    x, y = locs[b, other, 0] - locs[b, one, 0], locs[b, other, 1] - locs[b, one, 1]
    return np.sqrt(x * x + y * y)


@kernel
def solve_pdp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`; given: nodes to visit, nodes released `[B, N]`."""
    desk, (available, released) = set_up(options, shared, found, room), given
    allowed, num_nodes = room.allowed, options.num_nodes
    for row in range(start, stop):
        b = row // options.num_solutions
        depot = available[b, 0]  # leaving it is a step, and the only one at first
        for n in range(num_nodes):
            allowed[n] = available[b, n] and released[b, n] and (n == 0 or not depot)
        last = 0
        found.steps[row] = options.most
        for t in range(options.most):
            ask(b, last, desk)
            last = decide(row, t, desk)
            if last < 0:
                found.steps[row] = -1
                break
            if last == 0:
                for n in range(num_nodes):
                    allowed[n] = released[b, n]
            elif last <= num_nodes // 2:
                allowed[last + num_nodes // 2] = 1
            allowed[last] = 0


@exact_kernel
def solve_mtvrp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Routes of rows `start`..`stop`, by rules that are to the last bit those of the environment.

    Given: distances, travel times `[B, N, N]`; linehauls, backhauls, opening, latest arrival,
    service time, way back `[B, N]`; and `[B, 6]` capacity, distance limit, both with tolerance,
    whether routes are open, and whether linehauls may follow backhauls.
    """
    desk, allowed, num_nodes = (
        set_up(options, shared, found, room),
        room.allowed,
        options.num_nodes,
    )
    distance, ride, linehaul, backhaul, opening, latest, service, back, limits = given
    visited = np.empty(num_nodes, np.bool_)
    for row in range(start, stop):
        b = row // options.num_solutions
        capacity, longest, most_load, most_length, is_open, is_mixed = limits[b]
        visited[:] = False
        load_out, load_back, time, length = _ZERO, _ZERO, _ZERO, _ZERO
        last, left = 0, num_nodes
        found.steps[row] = -1
        for t in range(options.most):
            spare_out = most_load - load_out if load_back == 0 or is_mixed else _ZERO
            spare_back, spare_length = most_load - load_back, most_length - length
            fits = False
            for n in range(1, num_nodes):
                free = (
                    not visited[n]
                    and spare_out - linehaul[b, n] >= 0
                    and spare_back - backhaul[b, n] >= 0
                    and latest[b, n] - (time + ride[b, last, n]) >= 0
                    and spare_length - (distance[b, last, n] + back[b, n]) >= 0
                )
                allowed[n] = free
                fits |= free
            allowed[0] = last != 0 or not fits
            room.features[0] = _ONE - load_out / capacity
            room.features[1] = _ONE - load_back / capacity
            room.features[2], room.features[3], room.features[4] = time, length, is_open
            room.features[5] = longest - length if longest < np.inf else _ZERO
            ask(b, last, desk)
            node = decide(row, t, desk)
            if node:
                time = max(time + ride[b, last, node], opening[b, node]) + service[b, node]
                length += distance[b, last, node]
                load_back += backhaul[b, node]
                load_out = max(load_out + linehaul[b, node], load_back)
            else:
                load_out, load_back, time, length = _ZERO, _ZERO, _ZERO, _ZERO
            left -= not visited[node]
            visited[node], last = True, node
            if not left:
                found.steps[row] = t + 1
                break
