"""Loops of :mod:`rl4co.models.zoo.am.compiled_rollout`: rules of a few problems, and one decision.

All kernels are in this file, because numba compiles a kernel again when its own file changes, not
when that of a kernel it calls does.

What they share, as tuples of arrays:

* given: what a problem's rules need of its instances, as `compiled_rollout` reads it;
* shared: context table `[R, D]`, weights of the features `[F, D]`, graph context `[B, 1, D]`,
  glimpse keys and values `[B, H, N, d]`, logit keys `[B, N, D]`, and uniform numbers `[T, B]` to
  draw actions with (none: take the most likely one);
* found: actions `[B, T]`, their log-probabilities `[B, T]`, heads `[B, T, D]` and logits
  `[B, T, N]` (or neither), and the number of steps `[B]`, -1 for an instance with no way on;
* options: bound of the tanh clipping, and whether the glimpse is masked.
"""

from __future__ import annotations

import math

from typing import Any

import numpy as np

from rl4co.core.kernels import LazyKernel as exact_kernel
from rl4co.models.nn.compiled import kernel

# ---------------------------------------------------------------- problems


@kernel
def solve_tsp(given: Any, shared: Any, found: Any, options: Any, start: int, stop: int) -> None:
    """Tours of instances `start`..`stop`; given: allowed actions `[B, N]`."""
    mask, table, graph, steps = given[0], shared[0], shared[2], found[4]
    batch, num_nodes = mask.shape
    scratch = _scratch(shared)
    query, allowed = scratch[0], scratch[1]
    blank = 2 * batch * num_nodes  # rows of the placeholder
    for b in range(start, stop):
        allowed[:] = mask[b]
        first, last, rows = 0, 0, 2 * b * num_nodes
        steps[b] = num_nodes
        for t in range(num_nodes):
            one, other = (rows + 2 * first, rows + 2 * last + 1) if t else (blank, blank + 1)
            for i in range(query.size):
                query[i] = graph[b, 0, i] + table[one, i] + table[other, i]
            last = _decide(b, t, scratch, shared, found, options)
            if last < 0:
                steps[b] = -1
                break
            first = first if t else last
            allowed[last] = False


@kernel
def solve_cvrp(given: Any, shared: Any, found: Any, options: Any, start: int, stop: int) -> None:
    """Routes of instances `start`..`stop`; given: demand `[B, N]`, capacity, its limit `[B, 1]`."""
    demand, capacity, limit = given
    most, steps, num_nodes = found[0].shape[1], found[4], demand.shape[1]
    scratch = _scratch(shared)
    allowed = scratch[1]
    visited = np.empty(num_nodes, np.bool_)
    zero, one = np.float32(0), np.float32(1)
    for b in range(start, stop):
        visited[:] = False
        used, last, left = zero, 0, num_nodes
        steps[b] = -1
        for t in range(most):
            fits = False
            for n in range(1, num_nodes):
                allowed[n] = not (visited[n] or demand[b, n] + used > limit[b, 0])
                fits |= allowed[n]
            allowed[0] = last != 0 or not fits
            _ask(b, b * num_nodes + last, one - used / capacity[b, 0], scratch, shared)
            last = _decide(b, t, scratch, shared, found, options)
            used = used + demand[b, last] if last else zero
            left -= not visited[last]
            visited[last] = True
            if not left:
                steps[b] = t + 1
                break


@kernel
def solve_pctsp(given: Any, shared: Any, found: Any, options: Any, start: int, stop: int) -> None:
    """Tours of instances `start`..`stop`; given: prizes `[B, N]`, required, enough `[B, 1]`."""
    prize, required, enough = given
    most, steps, num_nodes = found[0].shape[1], found[4], prize.shape[1]
    scratch = _scratch(shared)
    allowed = scratch[1]
    zero = np.float32(0)
    for b in range(start, stop):
        allowed[:] = True
        total, last = zero, 0
        steps[b] = -1
        for t in range(most):
            allowed[0] = total >= enough[b, 0] or t >= num_nodes - 1
            missing = max(required[b, 0] - total, zero)
            _ask(b, b * num_nodes + last, missing, scratch, shared)
            last = _decide(b, t, scratch, shared, found, options)
            total += prize[b, last]
            allowed[last] = False
            if last == 0:
                steps[b] = t + 1
                break


@kernel
def solve_op(given: Any, shared: Any, found: Any, options: Any, start: int, stop: int) -> None:
    """Tours of instances `start`..`stop`.

    Given: coordinates `[B, N, 2]`, lengths of legs `[B, N, N]` (or none), limit of the way to each
    node, way to it from the depot `[B, N]`, and the length to be used `[B, 1]`.
    """
    locs, matrix, limit, first, budget = given
    most, steps, num_nodes = found[0].shape[1], found[4], limit.shape[1]
    scratch = _scratch(shared)
    allowed = scratch[1]
    visited, way = np.empty(num_nodes, np.bool_), np.empty(num_nodes, np.float32)
    for b in range(start, stop):
        visited[:] = False
        way[:] = first[b]
        length, last = np.float32(0), 0
        steps[b] = -1
        for t in range(most):
            for n in range(num_nodes):
                allowed[n] = n == 0 or not (visited[n] or way[n] > limit[b, n])
            _ask(b, b * num_nodes + last, budget[b, 0] - length, scratch, shared)
            last = _decide(b, t, scratch, shared, found, options)
            if last == 0:
                steps[b] = t + 1
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
def solve_pdp(given: Any, shared: Any, found: Any, options: Any, start: int, stop: int) -> None:
    """Tours of instances `start`..`stop`; given: nodes to visit, nodes released `[B, N]`."""
    available, released = given
    most, steps, num_nodes = found[0].shape[1], found[4], available.shape[1]
    scratch = _scratch(shared)
    allowed = scratch[1]
    for b in range(start, stop):
        depot = available[b, 0]  # leaving it is a step, and the only one at first
        for n in range(num_nodes):
            allowed[n] = available[b, n] and released[b, n] and (n == 0 or not depot)
        last = 0
        steps[b] = most
        for t in range(most):
            _ask(b, b * num_nodes + last, np.float32(0), scratch, shared)
            last = _decide(b, t, scratch, shared, found, options)
            if last < 0:
                steps[b] = -1
                break
            if last == 0:
                allowed[:] = released[b]
            elif last <= num_nodes // 2:
                allowed[last + num_nodes // 2] = True
            allowed[last] = False


# ---------------------------------------------------------------- one decision


@kernel
def _scratch(shared: Any) -> Any:
    """Room for query `[D]`, allowed actions, their indices `[N]`, scores `[H * N]`, heads `[D]`."""
    _, num_heads, num_nodes, dim = shared[3].shape
    return (
        np.empty(num_heads * dim, np.float32),
        np.empty(num_nodes, np.bool_),
        np.empty(num_nodes, np.uintp),
        np.empty(num_heads * num_nodes, np.float32),
        np.empty(num_heads * dim, np.float32),
    )


@kernel
def _ask(b: int, row: int, feature: float, scratch: Any, shared: Any) -> None:
    """Sets the query of a context with one node, a row of the table, and at most one feature."""
    query, (table, by_feature, graph) = scratch[0], shared[:3]
    for i in range(query.size):
        query[i] = graph[b, 0, i] + table[row, i]
    if by_feature.shape[0]:
        for i in range(query.size):
            query[i] += feature * by_feature[0, i]


@kernel
def _decide(b: int, t: int, scratch: Any, shared: Any, found: Any, options: Any) -> int:
    """The action of instance b at step t for the query and the allowed actions in the scratch.

    Returns -1 if none is allowed.
    """
    query, allowed, nodes, scores, heads = scratch
    key, value, folded_key, uniform = shared[3:]
    actions, log_probs, kept_heads, kept_logits, _ = found
    clipping, mask_inner = options
    one, two = np.float32(1), np.float32(2)

    if not mask_inner:
        _glimpse(query, key[b], value[b], nodes[: _list(allowed, nodes, True)], scores, heads)
    count = _list(allowed, nodes, False)
    if not count:
        return -1
    if mask_inner:
        _glimpse(query, key[b], value[b], nodes[:count], scores, heads)
    scores, total = scores[:count], np.float32(0)
    for j in range(count):
        n, score = nodes[j], np.float32(0)
        for i in range(heads.size):
            score += heads[i] * folded_key[b, n, i]
        scores[j] = score
        total += score
    diverged = total != total
    if kept_heads.shape[1]:
        kept_heads[b, t] = heads
        for j in range(count):
            kept_logits[b, t, nodes[j]] = scores[j]

    _exp(scores, two)
    for j in range(count):  # tanh z = 1 - 2 / (exp(2 z) + 1)
        scores[j] = clipping * (one - two / (scores[j] + one))
    chosen = int(np.argmax(scores))
    highest, total = scores[chosen], np.float32(0)
    for j in range(count):
        scores[j] -= highest
    _exp(scores, one)
    for j in range(count):
        total += scores[j]
    if uniform.shape[0]:
        # Strictly below the total even after rounding.
        threshold = uniform[t, b] * (total * np.float32(1.0 - 2.0**-20))
        chosen, reached = 0, scores[0]
        while reached <= threshold and chosen < count - 1:
            chosen += 1
            reached += scores[chosen]
    actions[b, t] = nodes[chosen]
    log_probs[b, t] = np.float32(np.nan) if diverged else np.log(scores[chosen] / total)
    return np.int64(nodes[chosen])


@kernel
def _list(allowed: np.ndarray, nodes: np.ndarray, everything: bool) -> int:
    """Writes the indices of allowed nodes (or of all) and returns how many there are."""
    count = 0
    for n in range(allowed.size):
        if everything or allowed[n]:
            nodes[count] = n
            count += 1
    return count


@kernel
def _glimpse(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    nodes: np.ndarray,
    scores: np.ndarray,
    heads: np.ndarray,
) -> None:
    """Attention of a query `[D]` to some nodes: keys and values `[H, N, d]` → heads `[D]`."""
    (num_heads, _, dim), count = key.shape, nodes.size
    zero = np.float32(0)
    for h in range(num_heads):
        row = scores[h * count : (h + 1) * count]
        highest = np.float32(-np.inf)
        for j in range(count):
            n, score = nodes[j], zero
            for i in range(dim):
                score += query[h * dim + i] * key[h, n, i]
            row[j] = score
            highest = max(highest, score)
        for j in range(count):
            row[j] -= highest
    # All heads at once: in short loops vector instructions have little to do.
    _exp(scores[: num_heads * count], np.float32(1.0 / math.sqrt(dim)))
    for h in range(num_heads):
        total = zero
        for i in range(h * dim, (h + 1) * dim):
            heads[i] = zero
        for j in range(count):
            n, weight = nodes[j], scores[h * count + j]
            total += weight
            for i in range(dim):
                heads[h * dim + i] += weight * value[h, n, i]
        for i in range(h * dim, (h + 1) * dim):
            heads[i] /= total


#: Coefficients of $2^x = \\exp(x \\ln 2)$; eight are exact to float32 between -1/2 and 1/2.
_POWERS = tuple(np.float32(math.log(2.0) ** k / math.factorial(k)) for k in range(8))


@kernel
def _exp(row: np.ndarray, scale: float) -> None:
    """Replaces each x by exp(scale x).

    A polynomial for the fraction, the exponent's bits for the whole part: unlike calls of `exp`,
    this is compiled to vector instructions.
    """
    scale *= np.float32(1.0 / math.log(2.0))
    for j in range(row.size):
        x = min(max(row[j] * scale, np.float32(-126)), np.float32(127))
        whole = np.floor(x + np.float32(0.5))
        x -= whole
        power = _POWERS[7]
        power = power * x + _POWERS[6]
        power = power * x + _POWERS[5]
        power = power * x + _POWERS[4]
        power = power * x + _POWERS[3]
        power = power * x + _POWERS[2]
        power = power * x + _POWERS[1]
        power = power * x + _POWERS[0]
        bits = (np.int32(whole) + np.int32(127)) << np.int32(23)
        row[j] = power * np.int32(bits).view(np.float32)
