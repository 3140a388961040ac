"""Losses as pure functions of tensors."""

from __future__ import annotations

import torch.nn.functional as F

from torch import Tensor

from rl4co.core.shapes import check_shapes


def reinforce_loss(advantage: Tensor, log_likelihood: Tensor) -> Tensor:
    """Policy-gradient loss whose gradient is that of REINFORCE.

    $$L = -\\frac{1}{|B|} \\sum_b (R_b - b_b) \\log \\pi(a_b | x_b)$$

    Args:
        advantage: Reward minus baseline, any shape; treated as a constant.
        log_likelihood: Of the same shape.
    """
    check_shapes(
        advantage=(advantage.flatten(), "B"), log_likelihood=(log_likelihood.flatten(), "B")
    )
    return -(advantage.detach() * log_likelihood).mean()


def critic_loss(value: Tensor, reward: Tensor) -> Tensor:
    """Mean squared error of the value against the (constant) reward."""
    return F.mse_loss(value, reward.detach())
