"""Trajectory balance: pure functions of tensors."""

from __future__ import annotations

import math

import torch

from torch import Tensor

from rl4co.core.errors import ConfigError


def trajectory_balance_loss(
    log_z: Tensor, log_forward: Tensor, log_backward: Tensor, energy: Tensor, beta: float
) -> Tensor:
    """$\\frac{1}{BA} \\sum (\\log Z + \\log P_F - \\log P_B + \\beta E)^2$.

    Args:
        log_z: One per instance `[B]`.
        log_forward: Log-likelihoods of the solutions `[B, A]`.
        log_backward: Log-probabilities of their construction, given the solutions `[B, A]`.
        energy: Costs of the solutions, minus the mean of their instance `[B, A]`; a constant.
        beta: Inverse temperature.
    """
    if not log_forward.shape == log_backward.shape == energy.shape:
        raise ConfigError(
            f"expected log_forward, log_backward and energy of one shape [B, A], got "
            f"{list(log_forward.shape)}, {list(log_backward.shape)} and {list(energy.shape)}"
        )
    return (log_z.unsqueeze(1) + log_forward - log_backward + beta * energy.detach()).pow(2).mean()


def log_backward_of_tours(actions: Tensor) -> Tensor:
    """A closed tour can begin at any node and go either way: $-\\log 2N$.

    Shapes:
        `[B, A, N]` → `[B, A]`
    """
    size = actions.shape[-1]
    return torch.full(actions.shape[:2], -math.log(2 * size), device=actions.device)


def log_backward_of_routes(actions: Tensor) -> Tensor:
    """R routes in any order, those with two or more customers either way: $-\\log R! - M \\log 2$.

    Shapes:
        actions `[B, A, T]`, 0 separates routes → `[B, A]`
    """
    depot = torch.zeros_like(actions[..., :1])
    visits = torch.cat([depot, actions, depot], -1)  # [B, A, T + 2]
    customer = visits != 0
    leaves = ~customer[..., :-1] & customer[..., 1:]  # a route begins
    goes_on = leaves[..., :-1] & customer[..., 2:]  # and has another customer
    routes, long_routes = leaves.sum(-1), goes_on.sum(-1)
    return -torch.lgamma(routes + 1.0) - long_routes * math.log(2.0)


def ramp(low: float, high: float, epoch: int, epochs: int, logarithmic: bool = False) -> float:
    """A setting that rises over the epochs, and is constant over the last five.

    Args:
        low: In the first epoch.
        high: From the fifth epoch before the end on.
        epoch: Counted from 1.
        epochs: Number of epochs.
        logarithmic: Rise with the logarithm of the epoch.
    """
    last = max(epochs - 5, 2)
    share = math.log(epoch) / math.log(last) if logarithmic else (epoch - 1) / last
    return low + (high - low) * min(share, 1.0)
