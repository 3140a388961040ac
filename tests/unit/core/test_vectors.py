"""Spelled-out vectors against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl4co.core.compiled import WIDTH, kernel
from rl4co.core.vectors import (
    add,
    divide,
    dots,
    entries,
    exp2,
    larger,
    largest_of,
    load,
    mix,
    multiply,
    smaller,
    store,
    subtract,
    tanh,
    total_of,
)


@pytest.fixture
def draw():
    numbers = np.random.default_rng(5)
    return lambda *shape: numbers.standard_normal(shape).astype(np.float32)


def run(operation: Any, *rows: np.ndarray) -> np.ndarray:
    """An operation on vectors, for rows of any length."""

    @kernel
    def loop(one: Any, other: Any, out: Any) -> None:
        for i in range(0, out.size, WIDTH):
            store(out, i, operation(load(one, i), load(other, i)))

    out = np.empty_like(rows[0])
    loop(*rows, out)
    return out


OPERATIONS = {
    "add": (add, np.add),
    "subtract": (subtract, np.subtract),
    "multiply": (multiply, np.multiply),
    "divide": (divide, np.divide),
    "larger": (larger, np.maximum),
    "smaller": (smaller, np.minimum),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic(name, draw):
    ours, theirs = OPERATIONS[name]
    one, other = draw(3 * WIDTH), draw(3 * WIDTH)
    np.testing.assert_allclose(run(ours, one, other), theirs(one, other), rtol=1e-6)


def test_whole_vectors(draw):
    @kernel
    def loop(row: Any) -> Any:
        return total_of(load(row, 0)), largest_of(load(row, 0))

    row = draw(WIDTH)
    np.testing.assert_allclose(loop(row), (row.sum(), row.max()), rtol=1e-5)


def test_powers_of_two():
    @kernel
    def loop(row: Any) -> None:
        for i in range(0, row.size, WIDTH):
            store(row, i, exp2(load(row, i)))

    x = np.linspace(-126, 127, 10008, dtype=np.float32)
    row = x.copy()
    loop(row)
    assert float(np.abs(row / np.exp2(x.astype(np.float64)) - 1).max()) < 5e-7
    rare = np.array([-np.inf, -1e30, -127, np.nan, 0, 1, -1, 10], np.float32)
    loop(rare)
    np.testing.assert_array_equal(rare, np.array([0, 0, 0, np.nan, 1, 2, 0.5, 1024], np.float32))


def test_hyperbolic_tangent():
    @kernel
    def loop(row: Any) -> None:
        for i in range(0, row.size, WIDTH):
            store(row, i, tanh(load(row, i)))

    x = np.array([*np.linspace(-20, 20, 1005), -np.inf, np.inf, np.nan], np.float32)
    row = x.copy()
    loop(row)
    np.testing.assert_allclose(row, np.tanh(x.astype(np.float64)), atol=4e-7)


@pytest.mark.parametrize("inner", [1, 2, 5])
def test_products_with_some_rows(inner, draw):
    @kernel
    def loop(x: Any, y: Any, offsets: Any, out: Any) -> None:
        rows = entries(y)  # with or without the array around them
        store(out, 0, dots(x, 3, rows, 2, offsets, 1, (x.size - 3) // WIDTH))

    width = inner * WIDTH
    x, y, out = draw(3 + width), draw(2 + 20 * width), np.empty(WIDTH, np.float32)
    chosen = np.array([0, 19, 7, 7, 0, 3, 11, 5, 2])
    loop(x, y, chosen * width, out)
    rows = y[2:].reshape(20, width)[chosen[1:]]
    np.testing.assert_allclose(out, rows @ x[3:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_sums_of_some_rows(groups, draw):
    @kernel
    def loop(weights: Any, y: Any, offsets: Any, out: Any) -> None:
        store(out, 0, mix(weights, 1, y, 4, offsets, offsets.size // 4))

    weights, y, out = draw(1 + 4 * groups), draw(4 + 20 * WIDTH), np.empty(WIDTH, np.float32)
    chosen = np.arange(4 * groups) * 7 % 20
    loop(weights, y, chosen * WIDTH, out)
    rows = y[4:].reshape(20, WIDTH)[chosen]
    np.testing.assert_allclose(out, weights[1:] @ rows, rtol=1e-4, atol=1e-5)


def test_entries_are_those_of_the_array():
    @kernel
    def loop(row: Any) -> float:
        values = entries(row)
        values[2] = values[0] + values[1]
        return values[2]

    row = np.array([1, 2, 0], np.float32)
    assert loop(row) == 3
    assert row[2] == 3
