"""One decision of a compiled rollout: attention of a query to the allowed nodes, and a choice.

Importing this module imports numba (:mod:`rl4co.core.vectors`, which also says when its cache has
to be cleared).

An instance has S solutions, which are rows of their own: row r belongs to instance r // S.
"""

from __future__ import annotations

import math

from typing import Any, NamedTuple

import numpy as np

from rl4co.core.compiled import WIDTH, kernel
from rl4co.core.vectors import (
    add,
    dots,
    entries,
    everywhere,
    exp2,
    larger,
    largest_of,
    load,
    mix,
    multiply,
    store,
    subtract,
    tanh,
    total_of,
)

_ONE, _ZERO = np.float32(1), np.float32(0)
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
def set_up(options: Any, shared: Any, found: Any, room: Any) -> Any:
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


# ---------------------------------------------------------------- the decision


@kernel
def ask(b: int, node: int, desk: Any) -> None:
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
def decide(row: int, t: int, desk: Any) -> int:
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
    for j in range(0, places, WIDTH):
        store(scores, j, multiply(everywhere(options.clipping), tanh(load(scores, j))))
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
