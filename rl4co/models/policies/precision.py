"""Precision and autograd mode of a policy call, as context managers."""

from __future__ import annotations

import contextlib

from collections.abc import Iterator

import torch

from tensordict import TensorDictBase
from torch import nn

#: Precisions in which the environments' tolerances hold.
_PRECISE = (torch.float32, torch.float64)


@contextlib.contextmanager
def weights_precision(network: nn.Module) -> Iterator[None]:
    """A network with weights in half precision computes in it, whatever its inputs are.

    States and rewards stay as they are: capacities and lengths need more digits than that.
    """
    weight = next(network.parameters(), None)
    if weight is None or weight.dtype in _PRECISE or is_autocast_on(weight.device.type):
        yield
        return
    # Weights need no conversion, so there is nothing to cache.
    with torch.autocast(weight.device.type, dtype=weight.dtype, cache_enabled=False):
        yield


def match_precision(td: TensorDictBase, network: nn.Module) -> TensorDictBase:
    """The state in the precision of a network's weights; `td` itself if it has that already.

    A float32 policy solves float64 instances this way; rewards are computed in float64, see
    :class:`rl4co.models.policies.constructive.ConstructivePolicy`.
    """
    weight = next(network.parameters(), None)
    if weight is None or weight.dtype not in _PRECISE:
        return td
    converted = td
    for key, value in td.items():
        if value.is_floating_point() and value.dtype != weight.dtype:
            converted = td.copy() if converted is td else converted
            converted[key] = value.to(weight.dtype)
    return converted


def is_autocast_on(device_type: str) -> bool:
    """Whether autocast is on for a kind of device."""
    available = torch.amp.is_autocast_available(device_type)
    return available and torch.is_autocast_enabled(device_type)
