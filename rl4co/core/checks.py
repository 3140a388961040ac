"""Checks of arguments: each raises `ConfigError` with the name of the argument and its value."""

from __future__ import annotations

from rl4co.core.errors import ConfigError


def check_positive(**values: float | None) -> None:
    """Raises unless all values are positive; None passes.

    Example:
        >>> check_positive(max_runtime=10.0)
    """
    for name, value in values.items():
        if value is not None and not value > 0:  # NaN raises, too
            raise ConfigError(f"expected a positive {name}, got {value}")


def check_at_least(minimum: float, **values: float | None) -> None:
    """Raises unless all values are at least the minimum; None passes.

    Example:
        >>> check_at_least(1, num_procs=2, seed=None)
    """
    for name, value in values.items():
        if value is not None and not value >= minimum:
            raise ConfigError(f"expected {name} of at least {minimum}, got {value}")
