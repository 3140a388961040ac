"""Loops of :mod:`rl4co.models.nn.compiled_attention`: self-attention, one instance after the other.

The matrices of a head are small: too small for batched products, which spend their time on calls
and on moving scores through memory, and of odd sizes, which compilers turn into vector instructions
only in part. So vectors are spelled out here, as a type of numba with a few operations, and the
products are made of tiles that stay in registers.

Importing this module imports numba. All that is compiled is in this file, because numba compiles
again when the file of a kernel changes, not when that of its parts does.

Matrices lie in flat arrays. They are named by an array and the offset of their first entry, with
the distance of rows (and, where it is not one, of columns).
"""

from __future__ import annotations

import math

from collections.abc import Sequence
from typing import Any

import numpy as np

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from rl4co.models.nn.compiled import kernel

#: Decorator of an operation: a function of its arguments' types, that returns the signature and how
#: instructions are generated.
_intrinsic: Any = extending.intrinsic

#: Floats of a vector: one register of AVX, two of NEON. Rows of scratch matrices are multiples.
WIDTH = 8

# ---------------------------------------------------------------- vectors

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)
_INTEGER = ir.IntType(64)
_FLAGS = ("reassoc", "contract", "nsz")


class _Vector(types.Type):
    """The type of a vector in a kernel."""


_VECTOR = _Vector("Vector")


@extending.register_model(_Vector)
class _VectorModel(extending.models.PrimitiveModel):
    """In a register."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _constant(value: float) -> Any:
    return ir.Constant(_FLOATS, [float(np.float32(value))] * WIDTH)


def _call(builder: Any, name: str, *values: Any) -> Any:
    """An operation that LLVM has for vectors."""
    kind = ir.FunctionType(_FLOATS, [_FLOATS] * len(values))
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v{WIDTH}f32")
    return builder.call(function, values)


def _repeat(builder: Any, value: Any) -> Any:
    """A vector of one float."""
    nothing = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(_INTS, [0] * WIDTH))


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where the entries of an array are."""
    return context.make_array(kind)(context, builder, array).data


def _offset(builder: Any, at: Any, step: Any, number: int) -> Any:
    """The offset after some steps."""
    return builder.add(at, builder.mul(step, _INTEGER(number)))


def _read(builder: Any, data: Any, at: Any) -> Any:
    """The vector at an offset."""
    return builder.load(builder.bitcast(builder.gep(data, [at]), _FLOATS.as_pointer()), align=4)


def _write(builder: Any, data: Any, at: Any, value: Any) -> None:
    """Puts a vector at an offset."""
    place = builder.bitcast(builder.gep(data, [at]), _FLOATS.as_pointer())
    builder.store(value, place, align=4)


@_intrinsic
def _load(_: Any, array: Any, at: Any) -> Any:
    """The floats of an array from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature.args[0], arguments[0])
        return _read(builder, data, arguments[1])

    return _VECTOR(array, types.intp), generate


@_intrinsic
def _store(_: Any, array: Any, at: Any, value: Any) -> Any:
    """Writes a vector to an array from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature.args[0], arguments[0])
        _write(builder, data, *arguments[1:])
        return context.get_dummy_value()

    return types.void(array, types.intp, _VECTOR), generate


@_intrinsic
def _all(_: Any, value: Any) -> Any:
    """A vector of one float."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _repeat(builder, arguments[0])

    return _VECTOR(types.float32), generate


def _operation(name: str) -> Any:
    """Arithmetic of two vectors."""

    @_intrinsic
    def operation(_: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return getattr(builder, name)(*arguments, flags=_FLAGS)

        return _VECTOR(_VECTOR, _VECTOR), generate

    return operation


_add, _subtract, _multiply = _operation("fadd"), _operation("fsub"), _operation("fmul")


@_intrinsic
def _larger(_: Any, left: Any, right: Any) -> Any:
    """The larger one of each pair."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return _VECTOR(_VECTOR, _VECTOR), generate


#: $2^x$ between -1/2 and 1/2 to 1e-7, the highest power first.
_POWERS = (
    np.polynomial.Chebyshev.interpolate(np.exp2, 5, (-0.5, 0.5))
    .convert(kind=np.polynomial.Polynomial)
    .coef[::-1]
)


@_intrinsic
def _exp2(_: Any, exponent: Any) -> Any:
    """$2^x$ for x of at most 127: a polynomial for the fraction, bits for the whole part."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, lowest = arguments[0], _constant(-127.0)  # whose bits are those of zero
        x = builder.select(builder.fcmp_ordered("<", x, lowest), lowest, x)  # NaN stays
        whole = _call(builder, "rint", x)
        fraction = builder.fsub(x, whole)
        power = _constant(_POWERS[0])
        for factor in _POWERS[1:]:
            power = _call(builder, "fmuladd", power, fraction, _constant(factor))
        biased = builder.add(builder.fptosi(whole, _INTS), ir.Constant(_INTS, [127] * WIDTH))
        bits = builder.shl(biased, ir.Constant(_INTS, [23] * WIDTH))
        return builder.fmul(power, builder.bitcast(bits, _FLOATS))

    return _VECTOR(_VECTOR), generate


# ---------------------------------------------------------------- matrices


def _tile(rows: int, vectors: int) -> Any:
    """A product whose result, some rows of some vectors, stays in registers."""

    @_intrinsic
    def multiply(
        _: Any, a: Any, a_at: Any, a_row: Any, a_column: Any,
        b: Any, b_at: Any, b_row: Any, c: Any, c_at: Any, c_row: Any, inner: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a_at, a_row, a_column, _, b_at, b_row, _, c_at, c_row, inner = arguments
            a, b, c = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 4, 7))
            sums = {
                (row, vector): cgutils.alloca_once(builder, _FLOATS)
                for row in range(rows)
                for vector in range(vectors)
            }
            for total in sums.values():
                builder.store(_constant(0.0), total)
            with cgutils.for_range(builder, inner) as loop:
                left_at = builder.add(a_at, builder.mul(a_column, loop.index))
                right_at = builder.add(b_at, builder.mul(b_row, loop.index))
                width = _INTEGER(WIDTH)
                right = [
                    _read(builder, b, _offset(builder, right_at, width, vector))
                    for vector in range(vectors)
                ]
                for row in range(rows):
                    place = builder.gep(a, [_offset(builder, left_at, a_row, row)])
                    left = _repeat(builder, builder.load(place))
                    for vector in range(vectors):
                        total = sums[row, vector]
                        more = _call(builder, "fmuladd", left, right[vector], builder.load(total))
                        builder.store(more, total)
            for (row, vector), total in sums.items():
                at = builder.add(_offset(builder, c_at, c_row, row), _INTEGER(WIDTH * vector))
                _write(builder, c, at, builder.load(total))
            return context.get_dummy_value()

        number = types.intp
        kinds = (a, *[number] * 3, b, *[number] * 2, c, *[number] * 3)
        return types.void(*kinds), generate

    return multiply


_tile_4x3, _tile_4x2, _tile_8x1 = _tile(4, 3), _tile(4, 2), _tile(8, 1)


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


def _exchange(builder: Any, rows: Sequence[Any], gap: int) -> list[Any]:
    """One step of a transposition: blocks of `gap` columns change places with as many rows."""
    columns = range(WIDTH)
    upper = [c - gap + WIDTH if c & gap else c for c in columns]
    lower = [c + WIDTH if c & gap else c + gap for c in columns]
    pairs = [(rows[r & ~gap], rows[r | gap], lower if r & gap else upper) for r in columns]
    return [
        builder.shuffle_vector(one, other, ir.Constant(_INTS, order)) for one, other, order in pairs
    ]


@_intrinsic
def _turn_block(_: Any, x: Any, x_at: Any, x_row: Any, y: Any, y_at: Any, y_row: Any) -> Any:
    """Writes the transpose of a square block."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x_at, x_row, _, y_at, y_row = arguments
        x, y = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 3))
        rows = [_read(builder, x, _offset(builder, x_at, x_row, row)) for row in range(WIDTH)]
        for gap in (4, 2, 1):
            rows = _exchange(builder, rows, gap)
        for number, row in enumerate(rows):
            _write(builder, y, _offset(builder, y_at, y_row, number), row)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp, y, types.intp, types.intp), generate


@kernel
def _turn(x: Any, x_at: int, rows: int, columns: int, y: Any) -> None:
    """Writes the transpose `[columns, rows]` of a matrix `[rows, columns]`."""
    for row in range(0, rows, WIDTH):
        for column in range(0, columns, WIDTH):
            _turn_block(x, x_at + row * columns + column, columns, y, column * rows + row, rows)


@kernel
def _pack(x: Any, at: int, nodes: int, parts: int, dim: int, rows: int, y: Any) -> None:
    """`[nodes, parts, dim]` → `[parts, rows, dim]`, of which rows beyond the nodes are left."""
    for i in range(nodes):
        for p in range(parts):
            for c in range(0, dim, WIDTH):
                _store(y, (p * rows + i) * dim + c, _load(x, at + (i * parts + p) * dim + c))


@kernel
def _unpack(y: Any, nodes: int, parts: int, dim: int, rows: int, x: Any, at: int) -> None:
    """The way back."""
    for i in range(nodes):
        for p in range(parts):
            for c in range(0, dim, WIDTH):
                _store(x, at + (i * parts + p) * dim + c, _load(y, (p * rows + i) * dim + c))


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
    factor = _all(np.float32(scale))
    for b in range(start, stop):
        _pack(qkv, b * nodes * 3 * heads * dim, nodes, 3 * heads, dim, rows, packed)
        for h in range(heads):
            query, key, value = h * size, (heads + h) * size, (2 * heads + h) * size
            _turn(packed, query, rows, dim, turned)
            _product(packed, key, dim, 1, turned, 0, rows, weights, 0, rows, rows, dim, rows)
            for i in range(0, rows, WIDTH):
                top = _all(np.float32(-np.inf))
                for j in range(nodes):
                    if real[b, j]:
                        top = _larger(_load(weights, j * rows + i), top)
                top = _multiply(top, factor)
                amount = _all(np.float32(0))
                for j in range(nodes):
                    weight = _all(np.float32(0))
                    if real[b, j]:
                        score = _multiply(_load(weights, j * rows + i), factor)
                        weight = _exp2(_subtract(score, top))
                    _store(weights, j * rows + i, weight)
                    amount = _add(amount, weight)
                _store(highest, i, top)
                _store(total, i, amount)
            _product(weights, 0, 1, rows, packed, value, dim, found, query, dim, rows, nodes, dim)
            at = 2 * h * nodes
            for i in range(nodes):
                share = one / total[i]
                normal[b, at + i], normal[b, at + nodes + i] = highest[i], share
                for c in range(query + i * dim, query + (i + 1) * dim, WIDTH):
                    _store(found, c, _multiply(_load(found, c), _all(share)))
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
    factor, step = _all(np.float32(scale)), _all(np.float32(slope))
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
                top, part, middle = _load(highest, i), _load(share, i), _load(mean, h * rows + i)
                for j in range(nodes):
                    weight = _all(zero)
                    if real[b, j]:
                        score = _multiply(_load(weights, j * rows + i), factor)
                        weight = _multiply(part, _exp2(_subtract(score, top)))
                    _store(weights, j * rows + i, weight)
                    change = _subtract(_load(inner, j * rows + i), middle)
                    _store(inner, j * rows + i, _multiply(_multiply(step, weight), change))
            _product(inner, 0, 1, rows, packed, key, dim, found, query, dim, rows, nodes, dim)
            _product(inner, 0, rows, 1, packed, query, dim, found, key, dim, rows, nodes, dim)
            _product(weights, 0, rows, 1, upper, query, dim, found, value, dim, rows, nodes, dim)
        _unpack(found, nodes, 3 * heads, dim, rows, grad_qkv, 3 * first)


# ---------------------------------------------------------------- glimpses

#: Queries that are looked at together, so that their scores fit the cache.
QUERIES = 128


@kernel
def glimpse(
    q: Any, k: Any, v: Any, allowed: Any, logit_key: Any, out: Any, normal: Any, logits: Any,
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
        normal: Logarithms of the sums of weights `[B, H, Q]`, to be written.
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
    highest, total = np.empty(most, np.float32), np.empty(most, np.float32)
    factor = _all(np.float32(scale))
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
                top, amount = _all(nothing), _all(zero)
                for j in range(i, nodes * most, most):
                    score = _add(_multiply(_load(weights, j), factor), _load(bias, j))
                    _store(weights, j, score)
                    top = _larger(score, top)
                for j in range(i, nodes * most, most):
                    weight = _exp2(_subtract(_load(weights, j), top))
                    _store(weights, j, weight)
                    amount = _add(amount, weight)
                _store(highest, i, top)
                _store(total, i, amount)
            _product(weights, 0, 1, most, values, 0, dim, found, 0, dim, most, nodes, dim)
            for i in range(count):
                share = _all(one / total[i])
                normal[b, h, first + i] = (highest[i] + np.log2(total[i])) * _LOG_2
                at = (i * heads + h) * dim
                for c in range(0, dim, WIDTH):
                    head = _multiply(_load(found, i * dim + c), share)
                    _store(joined, at + c, head)
                    _store(out, (b * queries + first) * width + at + c, head)
        if points:
            _pack(logit_key, b * nodes * width, nodes, 1, width, rows, targets)
            _turn(targets, 0, rows, width, sources)
            _product(joined, 0, width, 1, sources, 0, rows, scores, 0, rows, most, width, rows)
            for i in range(count):
                for j in range(nodes):
                    logits[b, first + i, j] = scores[i * rows + j]


_LOG_2 = np.float32(math.log(2.0))
