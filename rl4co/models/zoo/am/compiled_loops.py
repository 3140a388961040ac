"""Loops of :mod:`rl4co.models.zoo.am.compiled_rollout`: rules of a few problems, and one decision.

Importing this module imports numba (:mod:`rl4co.core.vectors`).

An instance has S solutions, which are rows of their own: row r belongs to instance r // S. Each is
constructed to its end before the next one. A problem's kernel keeps its state, says which actions
are allowed, sets the query, and asks :func:`_decide`.
"""

from __future__ import annotations

import math

from typing import Any, NamedTuple

import numpy as np

from rl4co.core.compiled import WIDTH, kernel
from rl4co.core.kernels import LazyKernel as exact_kernel
from rl4co.core.vectors import (
    add,
    divide,
    dots,
    entries,
    everywhere,
    exp2,
    larger,
    largest_of,
    load,
    mix,
    multiply,
    smaller,
    store,
    subtract,
    total_of,
)

_ONE, _TWO, _ZERO = np.float32(1), np.float32(2), np.float32(0)
_NOTHING = np.float32(-np.inf)
#: Powers of two are the fastest.
_LOG2_E = np.float32(math.log2(math.e))

# ---------------------------------------------------------------- what the kernels share


class Options(NamedTuple):
    """Numbers.

    Attributes:
        num_rows: Solutions of all instances B * S.
        num_solutions: Solutions of an instance S.
        num_nodes: Nodes N.
        num_heads: Heads H.
        dim: Floats of a head d, a multiple of the vectors' width.
        num_features: Features F of the context.
        num_forced: First actions K that are not chosen.
        most: Steps T, at most.
        draws: Whether actions are drawn; otherwise the most likely one is taken.
        keeps: Whether heads and logits are kept.
        mask_inner: Whether the glimpse is masked.
        clipping: Bound of the tanh clipping.
    """

    num_rows: int
    num_solutions: int
    num_nodes: int
    num_heads: int
    dim: int
    num_features: int
    num_forced: int
    most: int
    draws: bool
    keeps: bool
    mask_inner: bool
    clipping: np.float32


class Shared(NamedTuple):
    """Arrays that are read, or their entries.

    Attributes:
        table: Of the context, `[R, D]`.
        by_feature: Weights of the context's features `[F, D]`.
        graph: Graph context `[B, D]`.
        key: Of the glimpse, `[B, H, N, d]`.
        value: Of the glimpse, `[B, H, N, d]`.
        folded_key: Of the logits, `[B, N, D]`.
        forced: First actions `[B * S, K]`.
        uniform: Numbers to draw the other actions with `[T - K, B * S]`.
    """

    table: Any
    by_feature: Any
    graph: Any
    key: Any
    value: Any
    folded_key: Any
    forced: Any
    uniform: Any


class Found(NamedTuple):
    """Arrays that are written, or their entries.

    Attributes:
        actions: `[B * S, T]`.
        log_probs: Their log-probabilities `[B * S, T]`.
        steps: Their number `[B * S]`; -1: there was no way on.
        heads: Of each chosen action, `[B * S, T - K, D]`.
        logits: Of each chosen action, `[B * S, T - K, N]`.
    """

    actions: Any
    log_probs: Any
    steps: Any
    heads: Any
    logits: Any


class Room(NamedTuple):
    """Arrays to work with, or their entries. Lists of nodes fill whole vectors, of length P.

    Attributes:
        features: Of the context, `[F]`.
        query: `[D]`.
        scores: `[H, P]`.
        heads: `[D]`.
        highest: Highest scores `[H]`.
        totals: Sums of weights `[H]`.
        allowed: Whether each action is allowed, 1 or 0 `[N]`.
        nodes: Nodes that are looked at `[P]`.
        near: Offsets of their rows in keys and values `[P]`.
        far: Offsets of their rows in the logit keys `[P]`.
    """

    features: Any
    query: Any
    scores: Any
    heads: Any
    highest: Any
    totals: Any
    allowed: Any
    nodes: Any
    near: Any
    far: Any


def make_room(options: Options) -> Room:
    """Room for one thread."""
    places = -(-options.num_nodes // WIDTH) * WIDTH
    width, heads = options.num_heads * options.dim, options.num_heads
    return Room(
        features=np.zeros(options.num_features, np.float32),
        query=np.empty(width, np.float32),
        scores=np.empty(heads * places, np.float32),
        heads=np.empty(width, np.float32),
        highest=np.empty(heads, np.float32),
        totals=np.empty(heads, np.float32),
        allowed=np.empty(options.num_nodes, np.uint8),
        nodes=np.empty(places, np.int64),
        near=np.empty(places, np.int64),
        far=np.empty(places, np.int64),
    )


class Desk(NamedTuple):
    """All that a decision needs."""

    options: Any
    shared: Any
    found: Any
    room: Any


@kernel
def _set_up(options: Any, shared: Any, found: Any, room: Any) -> Any:
    """A desk with the entries of arrays, which the caller holds on to."""
    return Desk(
        options,
        Shared(
            entries(shared.table),
            entries(shared.by_feature),
            entries(shared.graph),
            entries(shared.key),
            entries(shared.value),
            entries(shared.folded_key),
            entries(shared.forced),
            entries(shared.uniform),
        ),
        Found(
            entries(found.actions),
            entries(found.log_probs),
            entries(found.steps),
            entries(found.heads),
            entries(found.logits),
        ),
        Room(
            entries(room.features),
            entries(room.query),
            entries(room.scores),
            entries(room.heads),
            entries(room.highest),
            entries(room.totals),
            entries(room.allowed),
            entries(room.nodes),
            entries(room.near),
            entries(room.far),
        ),
    )


# ---------------------------------------------------------------- problems


@kernel
def solve_tsp(
    given: Any, options: Any, shared: Any, found: Any, room: Any, start: int, stop: int
) -> None:
    """Tours of rows `start`..`stop`; given: allowed actions `[B, N]`."""
    desk, (mask,) = _set_up(options, shared, found, room), given
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
            last = _decide(row, t, desk)
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
    desk, (demand, capacity, limit) = _set_up(options, shared, found, room), given
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
            _ask(b, last, desk)
            last = _decide(row, t, desk)
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
    desk, (prize, required, enough) = _set_up(options, shared, found, room), given
    allowed = room.allowed
    for row in range(start, stop):
        b = row // options.num_solutions
        allowed[:] = 1
        total, last = _ZERO, 0
        found.steps[row] = -1
        for t in range(options.most):
            allowed[0] = total >= enough[b, 0] or t >= options.num_nodes - 1
            room.features[0] = max(required[b, 0] - total, _ZERO)
            _ask(b, last, desk)
            last = _decide(row, t, desk)
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
    desk, (locs, matrix, limit, first, budget) = _set_up(options, shared, found, room), given
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
            _ask(b, last, desk)
            last = _decide(row, t, desk)
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
    desk, (available, released) = _set_up(options, shared, found, room), given
    allowed, num_nodes = room.allowed, options.num_nodes
    for row in range(start, stop):
        b = row // options.num_solutions
        depot = available[b, 0]  # leaving it is a step, and the only one at first
        for n in range(num_nodes):
            allowed[n] = available[b, n] and released[b, n] and (n == 0 or not depot)
        last = 0
        found.steps[row] = options.most
        for t in range(options.most):
            _ask(b, last, desk)
            last = _decide(row, t, desk)
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
        _set_up(options, shared, found, room),
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
            _ask(b, last, desk)
            node = _decide(row, t, desk)
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


# ---------------------------------------------------------------- one decision


@kernel
def _ask(b: int, node: int, desk: Any) -> None:
    """Sets the query of a context with one node and some features."""
    options, shared, room = desk.options, desk.shared, desk.room
    width = options.num_heads * options.dim
    row, graph = (b * options.num_nodes + node) * width, b * width
    for i in range(0, width, WIDTH):
        total = add(load(shared.graph, graph + i), load(shared.table, row + i))
        for f in range(options.num_features):
            weight = load(shared.by_feature, f * width + i)
            total = add(total, multiply(everywhere(room.features[f]), weight))
        store(room.query, i, total)


@kernel
def _decide(row: int, t: int, desk: Any) -> int:
    """The action of a row at step t for the query and the allowed actions; -1 if there is none."""
    options, shared, found, _ = desk
    nodes, scores = desk.room.nodes, desk.room.scores
    if t < options.num_forced:
        action = shared.forced[row * options.num_forced + t]
        found.actions[row * options.most + t] = action
        return action
    b, chance = row // options.num_solutions, t - options.num_forced

    if not options.mask_inner:
        _glimpse(b, _list(True, desk), desk)
    count = _list(False, desk)
    if not count:
        return -1
    if options.mask_inner:
        _glimpse(b, count, desk)
    diverged = _point(b, count, desk)
    if options.keeps:
        _keep(row * (options.most - options.num_forced) + chance, count, desk)

    places = (count + WIDTH - 1) // WIDTH * WIDTH
    bound, one, two = everywhere(options.clipping), everywhere(_ONE), everywhere(_TWO)
    for j in range(0, places, WIDTH):  # tanh z = 1 - 2 / (exp(2 z) + 1)
        power = multiply(load(scores, j), everywhere(_TWO * _LOG2_E))
        power = exp2(smaller(power, everywhere(np.float32(126))))
        store(scores, j, multiply(bound, subtract(one, divide(two, add(power, one)))))
    for j in range(count, places):
        scores[j] = _NOTHING
    highest = _highest(scores, 0, places)
    chosen = 0
    while scores[chosen] != highest and chosen < count - 1:
        chosen += 1
    total = _exponentials(scores, 0, places, highest, _LOG2_E)
    if options.draws:
        # Strictly below the total even after rounding.
        threshold = shared.uniform[chance * options.num_rows + row] * (
            total * np.float32(1.0 - 2.0**-20)
        )
        chosen, reached = 0, scores[0]
        while reached <= threshold and chosen < count - 1:
            chosen += 1
            reached += scores[chosen]
    at = row * options.most + t
    found.actions[at] = nodes[chosen]
    found.log_probs[at] = np.float32(np.nan) if diverged else np.log(scores[chosen] / total)
    return nodes[chosen]


@kernel
def _list(everything: bool, desk: Any) -> int:
    """Lists the allowed nodes (or all), and where their rows are; returns how many there are.

    The last vector is filled up with the last node.
    """
    options, room = desk.options, desk.room
    dim, width = options.dim, options.num_heads * options.dim
    count = 0
    for n in range(options.num_nodes):
        room.nodes[count] = n
        room.near[count], room.far[count] = n * dim, n * width
        count += 1 if everything else np.int64(room.allowed[n])
    for j in range(count, (count + WIDTH - 1) // WIDTH * WIDTH):
        last = room.nodes[count - 1]
        room.near[j], room.far[j] = last * dim, last * width
    return count


@kernel
def _glimpse(b: int, count: int, desk: Any) -> None:
    """Attention of the query to the first `count` nodes of the list: writes the heads."""
    options, shared, room = desk.options, desk.shared, desk.room
    num_heads, num_nodes, dim = options.num_heads, options.num_nodes, options.dim
    places = (count + WIDTH - 1) // WIDTH * WIDTH
    scale = np.float32(math.log2(math.e) / math.sqrt(dim))
    base = b * num_heads * num_nodes * dim
    # Loops over all heads for each part: within one, no head has to wait for another.
    for h in range(num_heads):
        at = base + h * num_nodes * dim
        for j in range(0, places, WIDTH):
            score = dots(room.query, h * dim, shared.key, at, room.near, j, dim // WIDTH)
            store(room.scores, h * places + j, score)
    for h in range(num_heads):
        for j in range(h * places + count, (h + 1) * places):
            room.scores[j] = _NOTHING
    for h in range(num_heads):
        room.highest[h] = _highest(room.scores, h * places, places)
    for h in range(num_heads):
        highest = room.highest[h]
        room.totals[h] = _exponentials(room.scores, h * places, places, highest, scale)
    for h in range(num_heads):
        at, share = base + h * num_nodes * dim, everywhere(_ONE / room.totals[h])
        for c in range(0, dim, WIDTH):
            head = mix(room.scores, h * places, shared.value, at + c, room.near, places // 4)
            store(room.heads, h * dim + c, multiply(share, head))


@kernel
def _highest(scores: Any, first: int, places: int) -> float:
    """The highest of some scores, minus infinity if all are NaN."""
    top = everywhere(_NOTHING)
    for j in range(first, first + places, WIDTH):
        top = larger(load(scores, j), top)
    return largest_of(top)


@kernel
def _exponentials(scores: Any, first: int, places: int, highest: float, scale: float) -> float:
    """Replaces some scores x by $2^{s (x - h)}$ and returns the sum."""
    total, top, factor = everywhere(_ZERO), everywhere(highest), everywhere(scale)
    for j in range(first, first + places, WIDTH):
        weight = exp2(multiply(factor, subtract(load(scores, j), top)))
        store(scores, j, weight)
        total = add(total, weight)
    return total_of(total)


@kernel
def _point(b: int, count: int, desk: Any) -> bool:
    """Writes the logits of the first `count` nodes of the list; returns whether there is NaN."""
    options, room, total = desk.options, desk.room, everywhere(_ZERO)
    width = options.num_heads * options.dim
    base = b * options.num_nodes * width
    for j in range(0, count, WIDTH):
        key = desk.shared.folded_key
        logits = dots(room.heads, 0, key, base, room.far, j, width // WIDTH)
        store(room.scores, j, logits)
        total = add(total, logits)
    amount = total_of(total)
    return amount != amount


@kernel
def _keep(at: int, count: int, desk: Any) -> None:
    """Keeps what the replay needs, as chosen action number `at`; logits not asked for are zero."""
    options, found, room = desk.options, desk.found, desk.room
    width, first = options.num_heads * options.dim, at * options.num_nodes
    for i in range(0, width, WIDTH):
        store(found.heads, at * width + i, load(room.heads, i))
    for n in range(options.num_nodes):
        found.logits[first + n] = _ZERO
    for j in range(count):
        found.logits[first + room.nodes[j]] = room.scores[j]


@kernel
def close_gaps(values: np.ndarray, steps: np.ndarray, most: int) -> None:
    """Moves the first `most` steps of all rows together, in place.

    Args:
        values: `[R, T, W]`; afterwards it begins with `[R, most, W]`.
        steps: Steps that each row has `[R]`; what is behind them becomes zero.
        most: Steps to be left of a row.
    """
    rows, places, width = values.shape
    flat = values.reshape(-1)
    for row in range(rows):
        source, target, taken = row * places * width, row * most * width, steps[row] * width
        for i in range(taken):  # forward, so that nothing is overwritten before it is read
            flat[target + i] = flat[source + i]
        for i in range(taken, most * width):
            flat[target + i] = _ZERO
