"""Checks of arguments."""

from __future__ import annotations

import math

import pytest

from rl4co.core.checks import check_at_least, check_positive
from rl4co.core.errors import ConfigError


def test_valid_values_and_none_pass():
    check_positive(a=1, b=0.5, c=None)
    check_at_least(0, a=0, b=3, c=None)


@pytest.mark.parametrize("value", [0, -1.0, math.nan])
def test_values_that_are_not_positive_raise(value: float):
    with pytest.raises(ConfigError, match=rf"positive seconds, got {value}"):
        check_positive(steps=1, seconds=value)


@pytest.mark.parametrize("value", [1, math.nan])
def test_values_below_the_minimum_raise(value: float):
    with pytest.raises(ConfigError, match=rf"steps of at least 2, got {value}"):
        check_at_least(2, steps=value)
