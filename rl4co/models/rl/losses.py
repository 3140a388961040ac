"""Losses as pure functions of tensors."""

from __future__ import annotations

import torch.nn.functional as F

from torch import Tensor

from rl4co.core.errors import ConfigError


def reinforce_loss(advantage: Tensor, log_likelihood: Tensor) -> Tensor:
    """Policy-gradient loss whose gradient is that of REINFORCE.

    $$L = -\\frac{1}{|B|} \\sum_b (R_b - b_b) \\log \\pi(a_b | x_b)$$

    Args:
        advantage: Reward minus baseline, any shape; treated as a constant.
        log_likelihood: Of the same shape.
    """
    _check_same_shape("advantage", advantage, "log_likelihood", log_likelihood)
    return -(advantage.detach() * log_likelihood).mean()


def critic_loss(value: Tensor, reward: Tensor) -> Tensor:
    """Mean squared error of the value against the (constant) reward of the same shape."""
    _check_same_shape("value", value, "reward", reward)
    return F.mse_loss(value, reward.detach())


def _check_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Broadcasting `[B, 1]` against `[B]` would quietly compute a B × B loss."""
    if tensor.shape != other.shape:
        raise ConfigError(
            f"expected {name} and {other_name} of the same shape, got {list(tensor.shape)} and "
            f"{list(other.shape)}"
        )
