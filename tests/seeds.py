"""All seeds of a test run, shifted together: what holds for one seed must hold for its neighbours.

Tests, environments and models seed torch and NumPy in many places, and all of these end in one of
three functions. With `--seed-shift N` the shift is added in these, so that no place is forgotten.
Streams that a test starts in other processes are not shifted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

_Generator, _manual_seed, _default_rng = torch.Generator, torch.manual_seed, np.random.default_rng
_shift = 0


class _AnyGenerator(type(_Generator)):  # type: ignore[misc]
    """Copies of a generator, and torch's own, are of torch's class; they are generators, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)


class ShiftedGenerator(_Generator, metaclass=_AnyGenerator):
    """A generator whose seeds are shifted."""

    def manual_seed(self, seed: int) -> torch.Generator:
        return super().manual_seed(_shifted(seed))


def _shifted(seed: int) -> int:
    return (seed + _shift) % 2**63


def _shifted_manual_seed(seed: int) -> torch.Generator:
    return _manual_seed(_shifted(seed))


def _shifted_default_rng(seed: Any = None) -> np.random.Generator:
    return _default_rng(_shifted(seed) if isinstance(seed, int) else seed)


def shift_seeds(shift: int) -> None:
    """Adds `shift` to every seed that this process uses from now on."""
    global _shift
    _shift = shift
    torch.Generator = ShiftedGenerator  # type: ignore[misc]
    torch.manual_seed = torch.random.manual_seed = _shifted_manual_seed
    np.random.default_rng = _shifted_default_rng  # type: ignore[assignment]


@contextmanager
def original_seeds() -> Iterator[None]:
    """No shift for a while: for comparisons with numbers that belong to one seed."""
    global _shift
    shift, _shift = _shift, 0
    try:
        yield
    finally:
        _shift = shift
