"""Loops of :mod:`rl4co.models.nn.compiled_attention`, one instance after the other.

Products are made of tiles that stay in registers, and of vectors that are spelled out; see
:mod:`rl4co.core.vectors` also for how matrices are named. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rl4co.core.compiled import WIDTH, kernel
from rl4co.core.vectors import (
    add,
    divide,
    everywhere,
    exp2,
    larger,
    load,
    multiply,
    store,
    subtract,
    tile,
    turn_block,
)

# ---------------------------------------------------------------- matrices

_tile_4x3, _tile_4x2, _tile_8x1 = tile(4, 3), tile(4, 2), tile(8, 1)


@kernel
def _product(
    a: Any, a_at: int, a_row: int, a_column: int, b: Any, b_at: int, b_row: int,
    c: Any, c_at: int, c_row: int, rows: int, inner: int, columns: int,
) -> None:  # fmt: skip
    """$C = A B$ with rows and columns in multiples of the width."""
    at = 0
    while columns - at >= 3 * WIDTH:
        for row in range(0, rows, 4):
            _tile_4x3(
                a, a_at + row * a_row, a_row, a_column, b, b_at + at, b_row,
                c, c_at + row * c_row + at, c_row, inner,
            )  # fmt: skip
        at += 3 * WIDTH
    if columns - at == 2 * WIDTH:
        for row in range(0, rows, 4):
            _tile_4x2(
                a, a_at + row * a_row, a_row, a_column, b, b_at + at, b_row,
                c, c_at + row * c_row + at, c_row, inner,
            )  # fmt: skip
    elif columns - at == WIDTH:
        for row in range(0, rows, 8):
            _tile_8x1(
                a, a_at + row * a_row, a_row, a_column, b, b_at + at, b_row,
                c, c_at + row * c_row + at, c_row, inner,
            )  # fmt: skip


@kernel
def _turn(x: Any, x_at: int, rows: int, columns: int, y: Any) -> None:
    """Writes the transpose `[columns, rows]` of a matrix `[rows, columns]`."""
    for row in range(0, rows, WIDTH):
        for column in range(0, columns, WIDTH):
            turn_block(x, x_at + row * columns + column, columns, y, column * rows + row, rows)


@kernel
def _pack(x: Any, at: int, nodes: int, parts: int, dim: int, rows: int, y: Any) -> None:
    """`[nodes, parts, dim]` → `[parts, rows, dim]`, of which rows beyond the nodes are left."""
    for i in range(nodes):
        for p in range(parts):
            for c in range(0, dim, WIDTH):
                store(y, (p * rows + i) * dim + c, load(x, at + (i * parts + p) * dim + c))


@kernel
def _unpack(y: Any, nodes: int, parts: int, dim: int, rows: int, x: Any, at: int) -> None:
    """The way back."""
    for i in range(nodes):
        for p in range(parts):
            for c in range(0, dim, WIDTH):
                store(x, at + (i * parts + p) * dim + c, load(y, (p * rows + i) * dim + c))


# ---------------------------------------------------------------- attention
#
# Scores are kept with a row for each key and a column for each query, so that all sums of the
# softmax run over rows: a vector has the same key for eight queries.


@kernel
def attend(
    qkv: Any, real: Any, out: Any, normal: Any, sizes: Any, scale: float, start: int, stop: int
) -> None:
    """Attention of instances `start`..`stop`; all arrays have two axes, the batch first.

    Args:
        qkv: Queries, keys and values `[B, N, 3, H, d]`.
        real: Keys to attend to `[B, N]`.
        out: Heads `[B, N, H, d]`, to be written.
        normal: Of each query the highest score and one over the sum of weights `[B, H, 2, N]`, to
            be written.
        sizes: N, H, d.
        scale: Factor of scores whose powers of two are the weights.
        start: First instance.
        stop: Behind the last one.
    """
    nodes, heads, dim = sizes
    rows = (nodes + WIDTH - 1) // WIDTH * WIDTH
    size, one = rows * dim, np.float32(1)
    packed, found = np.zeros(3 * heads * size, np.float32), np.empty(heads * size, np.float32)
    turned, weights = np.empty(size, np.float32), np.empty(rows * rows, np.float32)
    highest, total = np.empty(rows, np.float32), np.empty(rows, np.float32)
    factor = everywhere(np.float32(scale))
    for b in range(start, stop):
        _pack(qkv, b * nodes * 3 * heads * dim, nodes, 3 * heads, dim, rows, packed)
        for h in range(heads):
            query, key, value = h * size, (heads + h) * size, (2 * heads + h) * size
            _turn(packed, query, rows, dim, turned)
            _product(packed, key, dim, 1, turned, 0, rows, weights, 0, rows, rows, dim, rows)
            for i in range(0, rows, WIDTH):
                top = everywhere(np.float32(-np.inf))
                for j in range(nodes):
                    if real[b, j]:
                        top = larger(load(weights, j * rows + i), top)
                top = multiply(top, factor)
                amount = everywhere(np.float32(0))
                for j in range(nodes):
                    weight = everywhere(np.float32(0))
                    if real[b, j]:
                        score = multiply(load(weights, j * rows + i), factor)
                        weight = exp2(subtract(score, top))
                    store(weights, j * rows + i, weight)
                    amount = add(amount, weight)
                store(highest, i, top)
                store(total, i, amount)
            _product(weights, 0, 1, rows, packed, value, dim, found, query, dim, rows, nodes, dim)
            at = 2 * h * nodes
            for i in range(nodes):
                share = one / total[i]
                normal[b, at + i], normal[b, at + nodes + i] = highest[i], share
                for c in range(query + i * dim, query + (i + 1) * dim, WIDTH):
                    store(found, c, multiply(load(found, c), everywhere(share)))
        _unpack(found, nodes, heads, dim, rows, out, b * nodes * heads * dim)


@kernel
def attend_backward(
    qkv: Any, real: Any, out: Any, normal: Any, grad: Any, grad_qkv: Any,
    sizes: Any, scale: float, slope: float, start: int, stop: int,
) -> None:  # fmt: skip
    """Gradients of instances `start`..`stop`, from what :func:`attend` wrote.

    Args:
        qkv: See :func:`attend`, like all that is not listed.
        real: See there.
        out: See there.
        normal: See there.
        grad: Gradient of the heads `[B, N, H, d]`.
        grad_qkv: Gradient of queries, keys and values `[B, N, 3, H, d]`, to be written.
        sizes: See there.
        scale: See there.
        slope: Factor of products that are scores.
        start: See there.
        stop: See there.
    """
    nodes, heads, dim = sizes
    rows = (nodes + WIDTH - 1) // WIDTH * WIDTH
    size, zero = rows * dim, np.float32(0)
    packed, found = np.zeros(3 * heads * size, np.float32), np.empty(3 * heads * size, np.float32)
    upper, turned = np.zeros(heads * size, np.float32), np.empty(size, np.float32)
    weights, inner = np.empty(rows * rows, np.float32), np.empty(rows * rows, np.float32)
    highest, share = np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    mean = np.zeros(heads * rows, np.float32)
    factor, step = everywhere(np.float32(scale)), everywhere(np.float32(slope))
    for b in range(start, stop):
        first = b * nodes * heads * dim
        _pack(qkv, 3 * first, nodes, 3 * heads, dim, rows, packed)
        _pack(grad, first, nodes, heads, dim, rows, upper)
        for i in range(nodes):
            for h in range(heads):
                at, dot = (i * heads + h) * dim, zero
                for c in range(at, at + dim):
                    dot += grad[b, c] * out[b, c]
                mean[h * rows + i] = dot
        for h in range(heads):
            query, key, value = h * size, (heads + h) * size, (2 * heads + h) * size
            _turn(packed, query, rows, dim, turned)
            _product(packed, key, dim, 1, turned, 0, rows, weights, 0, rows, rows, dim, rows)
            _turn(upper, query, rows, dim, turned)
            _product(packed, value, dim, 1, turned, 0, rows, inner, 0, rows, rows, dim, rows)
            at = 2 * h * nodes
            for i in range(nodes):
                highest[i], share[i] = normal[b, at + i], normal[b, at + nodes + i]
            for i in range(0, rows, WIDTH):
                top, part, middle = load(highest, i), load(share, i), load(mean, h * rows + i)
                for j in range(nodes):
                    weight = everywhere(zero)
                    if real[b, j]:
                        score = multiply(load(weights, j * rows + i), factor)
                        weight = multiply(part, exp2(subtract(score, top)))
                    store(weights, j * rows + i, weight)
                    change = subtract(load(inner, j * rows + i), middle)
                    store(inner, j * rows + i, multiply(multiply(step, weight), change))
            _product(inner, 0, 1, rows, packed, key, dim, found, query, dim, rows, nodes, dim)
            _product(inner, 0, rows, 1, packed, query, dim, found, key, dim, rows, nodes, dim)
            _product(weights, 0, rows, 1, upper, query, dim, found, value, dim, rows, nodes, dim)
        _unpack(found, nodes, 3 * heads, dim, rows, grad_qkv, 3 * first)


# ---------------------------------------------------------------- glimpses

#: Queries that are looked at together, so that their scores fit the cache.
QUERIES = 128


@kernel
def glimpse(
    q: Any, k: Any, v: Any, allowed: Any, logit_key: Any, out: Any, logits: Any,
    sizes: Any, scale: float, start: int, stop: int,
) -> None:  # fmt: skip
    """Attention of queries to the keys of their instance, for blocks `start`..`stop` of queries.

    Args:
        q: Queries `[B, Q, H, d]`.
        k: Keys `[B, H, N, d]`.
        v: Values `[B, H, N, d]`.
        allowed: Keys that each query may attend to `[B, Q, N]`.
        logit_key: Keys that the heads are compared with `[B, N, H * d]`, or nothing `[B, 0, 0]`.
        out: Heads `[B, Q, H, d]`, to be written.
        logits: Products of heads and logit keys `[B, Q, N]`, to be written if there are any.
        sizes: Q, N, H, d.
        scale: Factor of scores whose powers of two are the weights.
        start: First block, of which an instance has Q / 128.
        stop: Behind the last one.
    """
    queries, nodes, heads, dim = sizes
    blocks = (queries + QUERIES - 1) // QUERIES
    most = (min(queries, QUERIES) + WIDTH - 1) // WIDTH * WIDTH
    rows = (nodes + WIDTH - 1) // WIDTH * WIDTH
    zero, one, nothing = np.float32(0), np.float32(1), np.float32(-np.inf)
    width, points = heads * dim, logit_key.shape[1] > 0
    packed, found = np.zeros(width * most, np.float32), np.empty(most * dim, np.float32)
    keys, values = np.zeros(rows * dim, np.float32), np.zeros(rows * dim, np.float32)
    turned, weights = np.empty(most * dim, np.float32), np.empty(rows * most, np.float32)
    joined, scores = np.zeros(most * width, np.float32), np.empty(most * rows, np.float32)
    targets, sources = np.zeros(rows * width, np.float32), np.empty(width * rows, np.float32)
    bias = np.zeros(nodes * most, np.float32)
    total, factor = np.empty(most, np.float32), everywhere(np.float32(scale))
    for block in range(start, stop):
        b, first = block // blocks, block % blocks * QUERIES
        count = min(QUERIES, queries - first)
        _pack(q, (b * queries + first) * width, count, heads, dim, most, packed)
        for i in range(count):
            for j in range(nodes):
                bias[j * most + i] = zero if allowed[b, first + i, j] else nothing
        for h in range(heads):
            at = (b * heads + h) * nodes * dim
            _pack(k, at, nodes, 1, dim, rows, keys)
            _pack(v, at, nodes, 1, dim, rows, values)
            _turn(packed, h * most * dim, most, dim, turned)
            _product(keys, 0, dim, 1, turned, 0, most, weights, 0, most, rows, dim, most)
            for i in range(0, count, WIDTH):
                top, amount = everywhere(nothing), everywhere(zero)
                for j in range(i, nodes * most, most):
                    score = add(multiply(load(weights, j), factor), load(bias, j))
                    store(weights, j, score)
                    top = larger(score, top)
                for j in range(i, nodes * most, most):
                    weight = exp2(subtract(load(weights, j), top))
                    store(weights, j, weight)
                    amount = add(amount, weight)
                store(total, i, amount)
            _product(weights, 0, 1, most, values, 0, dim, found, 0, dim, most, nodes, dim)
            for i in range(count):
                share = everywhere(one / total[i])
                at = (i * heads + h) * dim
                for c in range(0, dim, WIDTH):
                    head = multiply(load(found, i * dim + c), share)
                    store(joined, at + c, head)
                    store(out, (b * queries + first) * width + at + c, head)
        if points:
            _pack(logit_key, b * nodes * width, nodes, 1, width, rows, targets)
            _turn(targets, 0, rows, width, sources)
            _product(joined, 0, width, 1, sources, 0, rows, scores, 0, rows, most, width, rows)
            for i in range(count):
                for j in range(nodes):
                    logits[b, first + i, j] = scores[i * rows + j]


@kernel
def glimpse_backward(
    q: Any, k: Any, v: Any, allowed: Any, out: Any, grad: Any,
    grad_q: Any, grad_k: Any, grad_v: Any, sizes: Any, scale: float, slope: float,
    start: int, stop: int,
) -> None:  # fmt: skip
    """Gradients of instances `start`..`stop`, from what :func:`glimpse` wrote.

    Args:
        q: See :func:`glimpse`, like all that is not listed.
        k: See there.
        v: See there.
        allowed: See there.
        out: See there.
        grad: Gradient of the heads `[B, Q, H, d]`.
        grad_q: Gradient of the queries `[B, Q, H, d]`, to be written.
        grad_k: Gradient of the keys `[B, H, N, d]`, to be written.
        grad_v: Gradient of the values `[B, H, N, d]`, to be written.
        sizes: See there.
        scale: See there.
        slope: Factor of products that are scores.
        start: See there.
        stop: See there.
    """
    queries, nodes, heads, dim = sizes
    most = (min(queries, QUERIES) + WIDTH - 1) // WIDTH * WIDTH
    rows = (nodes + WIDTH - 1) // WIDTH * WIDTH
    width, size = heads * dim, rows * dim
    zero, nothing = np.float32(0), np.float32(-np.inf)
    packed, upper = np.zeros(width * most, np.float32), np.zeros(width * most, np.float32)
    keys, values = np.zeros(heads * size, np.float32), np.zeros(heads * size, np.float32)
    sums_k, sums_v = np.empty(heads * size, np.float32), np.empty(heads * size, np.float32)
    turned, found = np.empty(most * dim, np.float32), np.empty(max(most, rows) * dim, np.float32)
    weights, inner = np.empty(rows * most, np.float32), np.empty(rows * most, np.float32)
    bias, mean = np.zeros(nodes * most, np.float32), np.zeros(heads * most, np.float32)
    factor, step = everywhere(np.float32(scale)), everywhere(np.float32(slope))
    one = everywhere(np.float32(1))
    for b in range(start, stop):
        for h in range(heads):
            for i in range(0, nodes * dim, WIDTH):
                at = (b * heads + h) * nodes * dim + i
                store(keys, h * size + i, load(k, at))
                store(values, h * size + i, load(v, at))
        sums_k[:], sums_v[:] = zero, zero
        for first in range(0, queries, QUERIES):
            count, base = min(QUERIES, queries - first), (b * queries + first) * width
            _pack(q, base, count, heads, dim, most, packed)
            _pack(grad, base, count, heads, dim, most, upper)
            for i in range(count):
                for h in range(heads):
                    dot = zero
                    for c in range(dim):
                        dot += grad[b, first + i, h, c] * out[b, first + i, h, c]
                    mean[h * most + i] = dot
                for j in range(nodes):
                    bias[j * most + i] = zero if allowed[b, first + i, j] else nothing
            for h in range(heads):
                query, key = h * most * dim, h * size
                _turn(packed, query, most, dim, turned)
                _product(keys, key, dim, 1, turned, 0, most, weights, 0, most, rows, dim, most)
                _turn(upper, query, most, dim, turned)
                _product(values, key, dim, 1, turned, 0, most, inner, 0, most, rows, dim, most)
                for i in range(0, count, WIDTH):
                    top, amount, middle = (
                        everywhere(nothing),
                        everywhere(zero),
                        load(mean, h * most + i),
                    )
                    for j in range(i, nodes * most, most):
                        score = add(multiply(load(weights, j), factor), load(bias, j))
                        store(weights, j, score)
                        top = larger(score, top)
                    for j in range(i, nodes * most, most):
                        weight = exp2(subtract(load(weights, j), top))
                        store(weights, j, weight)
                        amount = add(amount, weight)
                    share = divide(one, amount)
                    for j in range(i, nodes * most, most):
                        weight = multiply(load(weights, j), share)
                        store(weights, j, weight)
                        change = subtract(load(inner, j), middle)
                        store(inner, j, multiply(multiply(step, weight), change))
                _product(inner, 0, 1, most, keys, key, dim, found, 0, dim, most, nodes, dim)
                for i in range(count):
                    for c in range(0, dim, WIDTH):
                        store(grad_q, base + i * width + h * dim + c, load(found, i * dim + c))
                _product(inner, 0, most, 1, packed, query, dim, found, 0, dim, rows, count, dim)
                _sum_up(found, nodes * dim, sums_k, key)
                _product(weights, 0, most, 1, upper, query, dim, found, 0, dim, rows, count, dim)
                _sum_up(found, nodes * dim, sums_v, key)
        for h in range(heads):
            for i in range(0, nodes * dim, WIDTH):
                at = (b * heads + h) * nodes * dim + i
                store(grad_k, at, load(sums_k, h * size + i))
                store(grad_v, at, load(sums_v, h * size + i))


@kernel
def _sum_up(x: Any, size: int, sums: Any, at: int) -> None:
    """Adds a matrix to sums."""
    for i in range(0, size, WIDTH):
        store(sums, at + i, add(load(sums, at + i), load(x, i)))
