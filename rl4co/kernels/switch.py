"""The switch: whether kernels run at all."""

from __future__ import annotations

import contextlib
import os

from collections.abc import Iterator

from torch import Tensor

#: Values of the environment variable `RL4CO_KERNELS` that turn kernels off.
_OFF = ("0", "false", "off", "no")

_enabled = os.environ.get("RL4CO_KERNELS", "1").strip().lower() not in _OFF


def are_enabled() -> bool:
    """Whether compiled code may run."""
    return _enabled


def waits_for_device(tensor: Tensor) -> bool:
    """Whether reading a value of this tensor may stall a device.

    With kernels switched off, code behaves as on a GPU wherever it runs.
    """
    return tensor.device.type != "cpu" or not _enabled


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Within this context no compiled code runs, in any thread of the process.

    Example:
        >>> with disabled():
        ...     are_enabled()
        False
    """
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before
