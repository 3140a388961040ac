"""Sizes in saved models are counted before they are believed.

A configuration that says `embed_dim: 1000000000` would take all memory before anybody sees that the
weights beside it are of another size.
"""

from __future__ import annotations

import threading

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from rl4co.core.errors import FileFormatError

#: Parameters beyond those in a file that a constructor may make, and throw away again.
_SLACK = 2**20
#: Most nodes, jobs, layers ... of anything that was trained.
_LARGEST_SIZE = 10**7


@contextmanager
def parameter_budget(most: int, source: object) -> Iterator[None]:
    """Context in which modules are built that have about as many parameters as a file.

    Args:
        most: Numbers in the file, or more.
        source: The file, for the message.

    Raises:
        FileFormatError: A module has many more, before they are initialised.
    """
    thread, counted = threading.get_ident(), 0

    def count(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        nonlocal counted
        if parameter is None or threading.get_ident() != thread:
            return
        counted += parameter.numel()
        if counted > most + _SLACK:
            raise FileFormatError(
                f"expected a configuration of the weights in {source}, which are at most {most} "
                f"numbers, got one of more than {counted}; the configuration is damaged, or that "
                "of another model"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def reject_oversized_arguments(arguments: Mapping[str, Any], source: object) -> None:
    """Raises :class:`FileFormatError` for a recorded `num_...` that nothing trained can have."""
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            # Records have a value one level below its name.
            inner = {name: value["value"]} if set(value) == {"value"} else value
            reject_oversized_arguments(inner, source)
        elif str(name).startswith("num_") and isinstance(value, int) and value > _LARGEST_SIZE:
            raise FileFormatError(
                f"expected {name} of at most {_LARGEST_SIZE} in {source}, got {value}; the "
                "configuration is damaged"
            )
