"""Training and evaluation mode, for a while."""

from __future__ import annotations

import contextlib

from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(*policies: nn.Module) -> Iterator[None]:
    """Evaluation mode for the duration of a block; afterwards every part is as it was."""
    modes = [(module, module.training) for policy in policies for module in policy.modules()]
    for policy in policies:
        policy.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
