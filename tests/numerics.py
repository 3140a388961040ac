"""Comparisons of two ways to compute the same gradients, in what rounding leaves of them."""

from __future__ import annotations

import functools

import torch

from torch import nn

#: Share of the largest gradient that rounding in single precision may change. A gradient is a sum
#: over instances, steps and nodes, about 1e4 terms of relative error 1e-7; errors mostly cancel,
#: and normalisation by small deviations makes them larger again.
GRADIENT_TOLERANCE = 1e-4


def assert_same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    """Requires equal gradients of the parameters of two modules, up to rounding.

    The scale is that of the largest gradient of all parameters (at least one): terms of a sum may
    cancel, their rounding errors do not, so that an entry's own size says nothing about its error.
    """
    expected = [p.grad for p in theirs.parameters() if p.grad is not None]
    scale = max(1.0, *(float(gradient.abs().max()) for gradient in expected))
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        message = functools.partial("{}: {}".format, name)
        torch.testing.assert_close(
            mine.grad, other.grad, atol=GRADIENT_TOLERANCE * scale, rtol=1e-4, msg=message
        )
