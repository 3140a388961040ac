"""Vectors of floats as a type of numba, for loops that compilers do not turn into good ones.

Rows of a head are short and of odd numbers: too short for batched products, which spend their time
on calls and on moving results through memory, and for the vector instructions that a compiler finds
by itself, which come in long strides. Here they are spelled out.

Matrices lie in arrays whose entries are one after the other. They are named by an array and the
offset of their first entry, with the distance of rows (and, where it is not one, of columns).

Importing this module imports numba. Whoever changes it has to clear numba's cache (CONTRIBUTING.md
says how): numba compiles again when the file of a kernel changes, not when that of its parts does.
"""

from __future__ import annotations

import itertools
import math

from collections.abc import Sequence
from typing import Any

import numpy as np

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from rl4co.core.compiled import WIDTH, kernel

#: Decorator of an operation: a function of its arguments' types, that returns the signature and how
#: instructions are generated.
_intrinsic: Any = extending.intrinsic

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
    """Where the entries of an array are, or of what :func:`entries` made of it."""
    if isinstance(kind, types.CPointer):
        return array
    return context.make_array(kind)(context, builder, array).data


@_intrinsic
def entries(_: Any, array: Any) -> Any:
    """The entries of an array without the array, which the caller has to hold on to.

    They are read and written by `[i]`. Numba counts references to arrays, atomically, whenever they
    are handed on; in small functions, and with several threads, that takes longer than all else.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _data(context, builder, signature.args[0], arguments[0])

    return types.CPointer(array.dtype)(array), generate


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
def load(_: Any, array: Any, at: Any) -> Any:
    """The floats of an array from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature.args[0], arguments[0])
        return _read(builder, data, arguments[1])

    return _VECTOR(array, types.intp), generate


@_intrinsic
def store(_: Any, array: Any, at: Any, value: Any) -> Any:
    """Writes a vector to an array from an offset on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = _data(context, builder, signature.args[0], arguments[0])
        _write(builder, data, *arguments[1:])
        return context.get_dummy_value()

    return types.void(array, types.intp, _VECTOR), generate


@_intrinsic
def everywhere(_: Any, value: Any) -> Any:
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


add, subtract, multiply, divide = (_operation(name) for name in ("fadd", "fsub", "fmul", "fdiv"))


def _selection(order: str) -> Any:
    """One of each pair: the left one where it is in that order to the right one."""

    @_intrinsic
    def operation(_: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.select(builder.fcmp_ordered(order, *arguments), *arguments)

        return _VECTOR(_VECTOR, _VECTOR), generate

    return operation


larger, smaller = _selection(">"), _selection("<")


#: $2^x$ between -1/2 and 1/2 to 2e-7, the highest power first. It is one at zero, so that what is
#: certain has probability one.
_POWERS = (
    *np.polynomial.Chebyshev.interpolate(np.exp2, 5, (-0.5, 0.5))
    .convert(kind=np.polynomial.Polynomial)
    .coef[:0:-1],
    1.0,
)


@_intrinsic
def exp2(_: Any, exponent: Any) -> Any:
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


@kernel
def tanh(x: Any) -> Any:
    """$1 - 2 / (e^{2 x} + 1)$"""
    power = multiply(x, everywhere(_TWO_LOG2_E))
    power = exp2(smaller(everywhere(_LARGEST), power))  # NaN stays
    return subtract(everywhere(_ONE), divide(everywhere(_TWO), add(power, everywhere(_ONE))))


_ONE, _TWO, _LARGEST = np.float32(1), np.float32(2), np.float32(126)
_TWO_LOG2_E = np.float32(2 * math.log2(math.e))


def _whole(name: str, starts: Sequence[float] = ()) -> Any:
    """An operation that makes one float of a vector."""

    @_intrinsic
    def operation(_: Any, vector: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number = ir.FloatType()
            kind = ir.FunctionType(number, [number] * len(starts) + [_FLOATS])
            title = f"llvm.vector.reduce.{name}.v{WIDTH}f32"
            function = cgutils.get_or_insert_function(builder.module, kind, title)
            given = [ir.Constant(number, start) for start in starts]
            return builder.call(function, [*given, *arguments], fastmath=_FLAGS)

        return types.float32(_VECTOR), generate

    return operation


total_of, largest_of = _whole("fadd", [0.0]), _whole("fmax")

# ---------------------------------------------------------------- matrices


def tile(rows: int, vectors: int) -> Any:
    """A product whose result, some rows of some vectors, stays in registers."""

    @_intrinsic
    def multiply(
        _: Any, a: Any, a_at: Any, a_row: Any, a_column: Any,
        b: Any, b_at: Any, b_row: Any, c: Any, c_at: Any, c_row: Any, inner: Any,
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, a_at, a_row, a_column, _, b_at, b_row, _, c_at, c_row, inner = arguments
            a, b, c = (_data(context, builder, signature.args[i], arguments[i]) for i in (0, 4, 7))
            places = itertools.product(range(rows), range(vectors))
            sums = {place: _empty_sum(builder) for place in places}
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
                        _add_product(builder, sums[row, vector], left, right[vector])
            for (row, vector), total in sums.items():
                at = builder.add(_offset(builder, c_at, c_row, row), _INTEGER(WIDTH * vector))
                _write(builder, c, at, builder.load(total))
            return context.get_dummy_value()

        number = types.intp
        kinds = (a, *[number] * 3, b, *[number] * 2, c, *[number] * 3)
        return types.void(*kinds), generate

    return multiply


def _orders(gap: int) -> tuple[list[int], list[int]]:
    """Of two rows, the entries that are put side by side: every other block of `gap` entries."""
    upper = [c - gap + WIDTH if c & gap else c for c in range(WIDTH)]
    lower = [c + WIDTH if c & gap else c + gap for c in range(WIDTH)]
    return upper, lower


def _exchange(builder: Any, rows: Sequence[Any], gap: int) -> list[Any]:
    """One step of a transposition: blocks of `gap` columns change places with as many rows."""
    upper, lower = _orders(gap)
    pairs = [(rows[r & ~gap], rows[r | gap], lower if r & gap else upper) for r in range(WIDTH)]
    return [
        builder.shuffle_vector(one, other, ir.Constant(_INTS, order)) for one, other, order in pairs
    ]


@_intrinsic
def turn_block(_: Any, x: Any, x_at: Any, x_row: Any, y: Any, y_at: Any, y_row: Any) -> Any:
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


@_intrinsic
def dots(_: Any, x: Any, x_at: Any, y: Any, y_at: Any, offsets: Any, first: Any, inner: Any) -> Any:
    """Products of a row of x with eight rows of y, in a vector.

    The rows of y are where `offsets[first]` and the seven behind it say, counted from `y_at`. They
    have `inner` vectors.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x_at, _, y_at, _, first, inner = arguments
        x, y, offsets = (
            _data(context, builder, signature.args[i], arguments[i]) for i in (0, 2, 4)
        )
        starts = [builder.add(y_at, _entry(builder, offsets, first, row)) for row in range(WIDTH)]
        sums = [_empty_sum(builder) for _ in range(WIDTH)]
        with cgutils.for_range(builder, inner) as loop:
            shift = builder.mul(loop.index, _INTEGER(WIDTH))
            left = _read(builder, x, builder.add(x_at, shift))
            for start, total in zip(starts, sums, strict=True):
                _add_product(builder, total, left, _read(builder, y, builder.add(start, shift)))
        rows = [builder.load(total) for total in sums]
        for gap in (4, 2, 1):  # entries of a row that are `gap` apart are added
            upper, lower = _orders(gap)
            rows = [_join(builder, rows[r], rows[r + gap], upper, lower) for r in range(gap)]
        return rows[0]

    number = types.intp
    return _VECTOR(x, number, y, number, offsets, number, number), generate


def _join(builder: Any, one: Any, other: Any, upper: Sequence[int], lower: Sequence[int]) -> Any:
    orders = (ir.Constant(_INTS, order) for order in (upper, lower))
    parts = (builder.shuffle_vector(one, other, order) for order in orders)
    return builder.fadd(*parts, flags=_FLAGS)


@_intrinsic
def mix(_: Any, w: Any, w_at: Any, y: Any, y_at: Any, offsets: Any, groups: Any) -> Any:
    """Sum of weighted rows of y, of each a vector; `4 * groups` rows, where the offsets say."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, w_at, _, y_at, _, groups = arguments
        w, y, offsets = (
            _data(context, builder, signature.args[i], arguments[i]) for i in (0, 2, 4)
        )
        sums = [_empty_sum(builder) for _ in range(4)]  # additions wait for the one before
        with cgutils.for_range(builder, groups) as loop:
            first = builder.mul(loop.index, _INTEGER(len(sums)))
            for row, total in enumerate(sums):
                weight = _repeat(builder, _entry(builder, w, builder.add(w_at, first), row))
                start = builder.add(y_at, _entry(builder, offsets, first, row))
                _add_product(builder, total, weight, _read(builder, y, start))
        one, two, three, four = (builder.load(total) for total in sums)
        halves = builder.fadd(one, two, flags=_FLAGS), builder.fadd(three, four, flags=_FLAGS)
        return builder.fadd(*halves, flags=_FLAGS)

    return _VECTOR(w, types.intp, y, types.intp, offsets, types.intp), generate


def _entry(builder: Any, data: Any, at: Any, number: int) -> Any:
    """The entry some places behind an offset."""
    return builder.load(builder.gep(data, [builder.add(at, _INTEGER(number))]))


def _empty_sum(builder: Any) -> Any:
    """A place for a vector, in a register once it is compiled."""
    place = cgutils.alloca_once(builder, _FLOATS)
    builder.store(_constant(0.0), place)
    return place


def _add_product(builder: Any, place: Any, left: Any, right: Any) -> None:
    builder.store(_call(builder, "fmuladd", left, right, builder.load(place)), place)
