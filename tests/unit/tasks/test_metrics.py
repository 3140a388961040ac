"""Metrics of benchmarks against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from hypothesis import given
from hypothesis import strategies as st

from rl4co.core.errors import ConfigError
from rl4co.tasks.metrics import (
    Incumbents,
    Summary,
    gap,
    mean_gap,
    normalize_runtime,
    pareto_front,
    passmark_score,
    per_instance_time,
    primal_integral,
    summarize,
)

# ---------------------------------------------------------------- gaps


@pytest.mark.parametrize(
    ("value", "best", "maximize", "expected"),
    [
        (110.0, 100.0, False, 10.0),  # ten more than the best cost
        (95.0, 100.0, False, -5.0),  # a new best
        (90.0, 120.0, True, 25.0),  # a quarter of the prize is missing: 30 / 120
        (126.0, 120.0, True, -5.0),  # a new best prize
        (-8.0, -10.0, False, 20.0),  # costs below zero: 2 / |-10|
        (-12.0, -10.0, True, 20.0),
        (0.0, 0.0, False, 0.0),  # as good as a best-known value of 0
    ],
)
def test_gap(value: float, best: float, maximize: bool, expected: float):
    """Positive is worse, for costs and for gains."""
    assert gap(value, best, maximize) == pytest.approx(expected)


def test_gap_to_zero_is_rejected():
    """There is no percentage of nothing."""
    with pytest.raises(ConfigError, match="other than 0, got 0 for a value of 3"):
        gap(3.0, 0.0)
    with pytest.raises(ConfigError, match="finite value, got nan"):
        gap(math.nan, 1.0)
    with pytest.raises(ConfigError, match="finite best-known value, got inf"):
        gap(1.0, math.inf)


def test_mean_gap_is_a_mean_of_gaps():
    """Gaps 100 % and 0 %: 50 % on average. The gap of the averages, 10 / 1010, is below 1 %."""
    assert mean_gap([20.0, 1000.0], [10.0, 1000.0]) == pytest.approx(50.0)
    assert mean_gap([3.0, 5.0], [4.0, 5.0], maximize=True) == pytest.approx(12.5)
    with pytest.raises(ConfigError, match="got 2 and 1"):
        mean_gap([1.0, 2.0], [1.0])
    with pytest.raises(ConfigError, match="got 0 and 0"):
        mean_gap([], [])


# ---------------------------------------------------------------- incumbents


def test_incumbents_keep_what_improves():
    """Points in any order; of those that are no better nothing is left."""
    found = Incumbents.of_points([(3.0, 8.0), (1.0, 10.0), (2.0, 11.0), (4.0, 8.0), (5.0, 7.5)])
    assert found.times == (1.0, 3.0, 5.0)
    assert found.values == (10.0, 8.0, 7.5)
    assert (found.best, len(found)) == (7.5, 3)
    prizes = Incumbents.of_points([(1.0, 10.0), (2.0, 9.0), (3.0, 12.0)], maximize=True)
    assert prizes.values == (10.0, 12.0)


def test_value_and_gap_at_a_time():
    """None before the first solution; a solution counts from its own time on."""
    found = Incumbents((1.0, 3.0), (10.0, 8.0))
    assert [found.value_at(t) for t in (0.5, 1.0, 2.9, 3.0, 9.0)] == [None, 10.0, 10.0, 8.0, 8.0]
    assert found.gap_at(0.5, 8.0) is None
    assert found.gap_at(2.0, 8.0) == pytest.approx(25.0)
    assert Incumbents((1.0,), (6.0,), maximize=True).gap_at(1.0, 8.0) == pytest.approx(25.0)


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ((1.0,), (2.0, 1.0), "2 values and 1 times"),
        ((2.0, 1.0), (2.0, 1.0), "ascending times"),
        ((-1.0,), (2.0,), "ascending times from 0"),
        ((1.0, 2.0), (2.0, 2.0), "values that improve"),
        ((1.0,), (math.inf,), "NaN or infinity"),
    ],
)
def test_incumbents_that_make_no_sense(times, values, message: str):
    """Each rule has its message."""
    with pytest.raises(ConfigError, match=message):
        Incumbents(times, values)
    with pytest.raises(ConfigError, match="at least one incumbent"):
        _ = Incumbents((), ()).best


# ---------------------------------------------------------------- primal integral


def paper_formula(a: list[float], t: list[float], horizon: float, best: float) -> float:
    """The equation of the paper, word for word: `a[0]`, `t[0]` are the beginning."""
    area = sum(a[i - 1] * (t[i] - t[i - 1]) for i in range(1, len(t)))
    return 100 * ((area + a[-1] * (horizon - t[-1])) / (horizon * best) - 1)


def test_primal_integral_by_hand():
    """Best 100, budget 10 s: nothing (counts as 200) for 2 s, 120 for 3 s, 110 for 5 s.

    (200 * 2 + 120 * 3 + 110 * 5) / (10 * 100) - 1 = 1310 / 1000 - 1 = 31 %.
    """
    found = Incumbents((2.0, 5.0), (120.0, 110.0))
    assert primal_integral(found, 100.0, 10.0) == pytest.approx(31.0)
    # 10 % before the first solution, as in the DIMACS challenge: (110*2 + 360 + 550)/1000 = 1.13.
    assert primal_integral(found, 100.0, 10.0, initial_gap=10.0) == pytest.approx(13.0)


def test_primal_integral_of_prizes():
    """Best 100, budget 10 s: no prize for 4 s, 80 for 6 s: (100 * 4 + 20 * 6) / 10 = 52 %."""
    found = Incumbents((4.0,), (80.0,), maximize=True)
    assert primal_integral(found, 100.0, 10.0) == pytest.approx(52.0)


def test_primal_integral_ends_with_the_budget():
    """What comes at the end or later does not count; the best value at once gives 0."""
    late = Incumbents((2.0, 10.0, 11.0), (120.0, 110.0, 100.0))
    assert primal_integral(late, 100.0, 10.0) == pytest.approx((200 * 2 + 120 * 8) / 10 - 100)
    assert primal_integral(Incumbents((0.0,), (100.0,)), 100.0, 10.0) == 0.0
    assert primal_integral(Incumbents((), ()), 100.0, 10.0) == pytest.approx(100.0)
    with pytest.raises(ConfigError, match="positive time limit, got 0"):
        primal_integral(late, 100.0, 0.0)


@given(
    st.lists(st.floats(0.01, 9.9), min_size=1, max_size=8, unique=True),
    st.lists(st.floats(50.0, 300.0), min_size=8, max_size=8, unique=True),
)
def test_primal_integral_is_the_papers(times: list[float], values: list[float]):
    """For costs the mean gap over time is the formula with a beginning of twice the best value."""
    times, values = sorted(times), sorted(values, reverse=True)[: len(times)]
    found = Incumbents(tuple(times), tuple(values))
    expected = paper_formula([100.0, *values], [0.0, *times], 10.0, best=50.0)
    assert primal_integral(found, 50.0, 10.0) == pytest.approx(expected, abs=1e-9)


# ---------------------------------------------------------------- time


def test_passmark():
    """(1 * 2500 + 1 * 20000) / 2 = 11250; a method on the processor alone has 1250."""
    assert passmark_score(2500.0, 20000.0) == 11250.0
    assert passmark_score(2500.0) == 1250.0
    assert passmark_score(2500.0, 100.0, num_cpus=4, num_gpus=2) == 5100.0
    # A machine with half the score takes twice the time.
    assert normalize_runtime(10.0, score=1250.0, reference_score=625.0) == 20.0
    with pytest.raises(ConfigError, match="not negative"):
        passmark_score(-1.0)
    with pytest.raises(ConfigError, match="positive scores, got 0"):
        normalize_runtime(1.0, 0.0, 1.0)


def test_time_in_a_batch():
    """An equal share."""
    assert per_instance_time(3.0, 12) == 0.25
    with pytest.raises(ConfigError, match="at least 1 instance, got 0"):
        per_instance_time(3.0, 0)


# ---------------------------------------------------------------- summaries


def test_summary():
    """Mean 5, deviations 3, 1, 1, 3: variance 20 / 4 = 5."""
    assert summarize([2.0, 4.0, 6.0, 8.0]) == Summary(4, 5.0, math.sqrt(5.0), 2.0, 5.0, 8.0)
    assert summarize([]) is None


def test_pareto_front():
    """Faster and better both count; of equal points the first."""
    points = [(1.0, 10.0), (2.0, 12.0), (2.0, 5.0), (3.0, 5.0), (4.0, 1.0), (1.0, 10.0)]
    assert pareto_front(points) == [0, 2, 4]
    assert pareto_front([]) == []
